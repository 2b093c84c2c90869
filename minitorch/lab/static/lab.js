// What all pages share: questions to the server, news from it, colours, and the theme.

export const $ = (id) => document.getElementById(id);
const GONE = "The lab does not answer; is `minitorch lab` still running?";
const page = location.pathname.split("/").pop();

let before = Promise.resolve();

/** Ask the server; its answer, or null after its complaint was shown. One question waits
 * for the answer to the one before, or the later could be heard first. */
export function ask(question, body = {}) {
  before = before.then(() => send(question, body));
  return before;
}

/** The same at once, whatever is on its way. */
export async function send(question, body = {}) {
  try {
    const answer = await fetch(`api/${page}/${question}`, {
      method: "POST", body: JSON.stringify(body),
    });
    const content = await answer.json();
    complain(content.error || "");
    return content.error ? null : content;
  } catch {
    complain(GONE);
    return null;
  }
}

/** Call `hear` with all news of this page's stream. */
export function listen(hear) {
  const stream = new EventSource(`api/${page}/events`);
  stream.onmessage = (event) => hear(JSON.parse(event.data));
  stream.onerror = () => complain(GONE);
  stream.onopen = () => $("problem").textContent === GONE && complain("");
}

export function complain(text) {
  if ($("problem").textContent !== text) $("problem").textContent = text;
}

/** Say something to those who hear the page. */
export function say(text) { $("status").textContent = text; }

export function bytes(text) {
  const raw = atob(text), out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out;
}

/** An element with attributes, and children that are elements or text. */
export function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "rect", "circle", "line", "path", "text", "title"];
  const out = svg.includes(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) out.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) out.setAttribute(name, value);
  }
  out.append(...children);
  return out;
}

export function short(x) {
  if (x === null || x === undefined) return "-";
  const size = Math.abs(x);
  if (size && (size < 1e-3 || size >= 1e5)) return x.toExponential(1);
  return String(Number(x.toPrecision(4)));
}

// --------------------------------------------------------------------------- colours

export const color = {};
const watching = [];

/** Call `redraw` when the colours have changed. */
export function onTheme(redraw) { watching.push(redraw); }

/** A number from -1 (blue) over 0 (paper) to 1 (orange), as red, green and blue. */
export function shade(x, out, at) {
  const end = x < 0 ? color.blueRgb : color.orangeRgb, t = Math.abs(x);
  for (let i = 0; i < 3; i++) out[at + i] = color.cardRgb[i] * (1 - t) + end[i] * t;
  out[at + 3] = 255;
}

/** Paint int8 values, -127 to 127, as pixels of a canvas with rows of `width`. */
export function paint(canvas, data, width) {
  const height = data.length / width;
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  const context = canvas.getContext("2d"), image = context.createImageData(width, height);
  for (let i = 0; i < data.length; i++) shade(data[i] / 127, image.data, 4 * i);
  context.putImageData(image, 0, 0);
}

function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["paper", "card", "ink", "soft", "line", "blue", "orange", "pick"]) {
    const text = style.getPropertyValue(`--${name}`).trim();
    color[name] = text;
    color[`${name}Rgb`] = [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
  }
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  $("theme").textContent = name === "dark" ? "Light" : "Dark";
  $("theme").setAttribute("aria-label", `${$("theme").textContent} colours`);
  readColors();
  for (const redraw of watching) redraw();
}

const dark = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
setTheme(localStorage.getItem("theme") || dark);
$("theme").addEventListener("click", () => {
  const name = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("theme", name);
  setTheme(name);
});

// ---------------------------------------------------------- models, and what they say

/** Bars of [name, probability]; `choose`, if any, is called with the number of one. */
export function bars(place, rows, best, choose = null) {
  place.replaceChildren(...rows.map(([name, p], i) => {
    const percent = `${(100 * p).toFixed(1)} %`;
    const bar = make("span", { class: "fill", style: `width:${100 * p}%` });
    return make(choose ? "button" : "div", {
      type: choose && "button", class: i === best ? "bar best" : "bar", onclick: () => choose && choose(i),
    }, make("b", {}, name), make("span", { class: "rail", "aria-hidden": "true" }, bar), make("span", {}, percent));
  }));
}

/** The button and the line of a page whose model is trained; `ready` when there is one. */
export function training(ready) {
  $("train").addEventListener("click", () => ask("train"));
  let had = false, was = false;
  listen((news) => {
    $("train").disabled = news.training;
    if (news.line) $("line").textContent = news.line;
    else if (news.ready) $("line").textContent = "A trained model was loaded.";
    if (was && !news.training) say(news.line);
    if (news.ready && (!had || (was && !news.training))) ready();
    had = news.ready;
    was = news.training;
  });
}
