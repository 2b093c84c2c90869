// A network learns points: the boundary moves from look to look, at each frame a little.

import { $, ask, bytes, color, complain, listen, make, onTheme, paint, say, shade, short } from "./lab.js";

const plane = $("plane").getContext("2d"), dots = $("dots").getContext("2d");
const SIZE = $("plane").width;
const small = document.createElement("canvas");
let side = 0, image, soft, now, goal, spots, labels, playing = false, moving = false;
const shades = new Uint32Array(256), rgb = new Uint8ClampedArray(4);

// ------------------------------------------------------------------------- the plane

function mixColors() {
  for (let i = 0; i < 256; i++) {
    shade((i / 127.5 - 1) * 0.55, rgb, 0);
    shades[i] = new Uint32Array(rgb.buffer)[0];
  }
  moving = true;
}

/** The places where the probability passes 1/2, as lines within squares of places. */
function border() {
  const step = SIZE / side, at = (a, b) => (127.5 - a) / (b - a);
  plane.beginPath();
  for (let y = 0; y + 1 < side; y++) {
    for (let x = 0; x + 1 < side; x++) {
      const i = y * side + x, a = now[i], b = now[i + 1], c = now[i + side], d = now[i + side + 1];
      const key = (a > 127.5) + 2 * (b > 127.5) + 4 * (c > 127.5) + 8 * (d > 127.5);
      if (key === 0 || key === 15) continue;
      let ends = 0;
      const end = (u, v) => {
        const px = (x + 0.5 + u) * step, py = SIZE - (y + 0.5 + v) * step;
        if (ends++ % 2) plane.lineTo(px, py); else plane.moveTo(px, py);
      };
      if ((key & 1) !== (key >> 1 & 1)) end(at(a, b), 0);
      if ((key & 1) !== (key >> 2 & 1)) end(0, at(a, c));
      if ((key >> 1 & 1) !== (key >> 3)) end(1, at(b, d));
      if ((key >> 2 & 1) !== (key >> 3)) end(at(c, d), 1);
    }
  }
  plane.stroke();
}

function drawPlane() {
  let far = 0;
  for (let i = 0; i < now.length; i++) {
    const way = goal[i] - now[i];
    now[i] += way * 0.3;
    if (way > far) far = way; else if (-way > far) far = -way;
    // Rows of pixels go down, those of places up.
    image[(side - 1 - (i / side | 0)) * side + i % side] = shades[now[i] + 0.5 | 0];
  }
  soft.putImageData(pixels, 0, 0);
  plane.drawImage(small, 0, 0, SIZE, SIZE);
  plane.strokeStyle = color.ink;
  plane.lineWidth = 2;
  border();
  moving = far > 0.5;
}

/** Points are drawn once, on a canvas of their own above the plane. */
function drawDots() {
  if (!spots) return;
  dots.clearRect(0, 0, SIZE, SIZE);
  const n = labels.length, r = n > 3000 ? 1.6 : n > 800 ? 2.6 : 4;
  for (const label of [0, 1]) {
    dots.fillStyle = label ? color.orange : color.blue;
    dots.strokeStyle = color.card;
    dots.lineWidth = n > 3000 ? 0.3 : 0.8;
    dots.beginPath();
    for (let i = 0; i < n; i++) {
      if (labels[i] !== label) continue;
      const x = spots[2 * i] / 65536 * SIZE, y = SIZE - spots[2 * i + 1] / 65536 * SIZE;
      if (label) dots.rect(x - r * 0.9, y - r * 0.9, r * 1.8, r * 1.8);
      else { dots.moveTo(x + r, y); dots.arc(x, y, r, 0, 7); }
    }
    dots.fill();
    dots.stroke();
  }
}

// ------------------------------------------------------------------------- the curve

const MOST = 1200, losses = new Float32Array(3 * MOST);  // step, training, test
let count = 0, fresh = false;

function addLoss(step, train, test) {
  if (train === null) return;
  if (count === MOST) {  // every second one goes
    for (let i = 0; i < MOST / 2; i++) losses.copyWithin(3 * i, 6 * i, 6 * i + 3);
    count = MOST / 2;
  }
  losses.set([step, train, test === null ? NaN : test], 3 * count++);
  fresh = true;
}

function drawCurve() {
  const canvas = $("curve"), c = canvas.getContext("2d");
  const left = 62, w = canvas.width - left - 14, h = canvas.height - 50;
  c.clearRect(0, 0, canvas.width, canvas.height);
  c.font = "22px system-ui, sans-serif";
  c.fillStyle = color.soft;
  let top = 0.1;
  for (let i = 0; i < count; i++) top = Math.max(top, losses[3 * i + 1], losses[3 * i + 2] || 0);
  const last = count ? losses[3 * count - 3] : 1;
  c.strokeStyle = color.line;
  for (const part of [0, 0.5, 1]) {
    const y = 14 + h * (1 - part);
    c.beginPath(); c.moveTo(left, y); c.lineTo(left + w, y); c.stroke();
    c.fillText(short(Number((top * part).toPrecision(2))), 4, y + 7);
  }
  c.fillText("0", left, h + 42);
  c.textAlign = "right";
  c.fillText(`step ${last}`, left + w, h + 42);
  c.textAlign = "left";
  c.lineWidth = 3;
  for (const k of [2, 1]) {
    c.strokeStyle = k === 1 ? color.blue : color.orange;
    c.setLineDash(k === 1 ? [] : [10, 6]);
    c.beginPath();
    for (let i = 0, up = false; i < count; i++) {
      const v = losses[3 * i + k];
      if (v !== v) continue;
      const x = left + w * losses[3 * i] / last, y = 14 + h * (1 - v / top);
      if (up) c.lineTo(x, y); else c.moveTo(x, y);
      up = true;
    }
    c.stroke();
  }
  c.setLineDash([]);
  fresh = false;
}

// ------------------------------------------------------------------------ the layers

let look = null, last = null, shownLayers = [];

function makeLayers(layers, shapes) {
  $("layers").dataset.shapes = shapes;
  shownLayers = layers.map((layer, i) => {
    const kind = i + 1 === layers.length ? "output" : `layer ${i + 1}`;
    const parts = ["weight", "grad"].map((name) => ({
      canvas: make("canvas", { role: "img" }), text: make("small"), name,
    }));
    const figure = make("figure", {},
      make("figcaption", {}, `${kind}: ${layer.shape[1]} to ${layer.shape[0]}`),
      ...parts.map((p) => p.canvas), ...parts.map((p) => p.text));
    return { figure, parts, kind };
  });
  $("layers").replaceChildren(...shownLayers.map((layer) => layer.figure));
}

function drawLayers(layers) {
  layers.forEach((layer, i) => shownLayers[i].parts.forEach((part) => {
    const values = layer[part.name];
    const data = values ? new Int8Array(bytes(values.data).buffer) : new Int8Array(layer.shape[0] * layer.shape[1]);
    paint(part.canvas, data, layer.shape[1]);
    const what = part.name === "grad" ? "gradient" : "weights";
    part.text.textContent = `${what} ${values ? short(Number(values.rms.toPrecision(2))) : "-"}`;
    part.canvas.setAttribute("aria-label",
      `${what} of ${shownLayers[i].kind}, root mean square ${values ? short(values.rms) : "none yet"}`);
  }));
}

// ---------------------------------------------------------------------------- frames

let before = 0, frames = 0, since = 0;
window.intervals = [];  // milliseconds between frames, for whoever wants to measure

function frame(time) {
  if (before) {
    if (window.intervals.length < 100000) window.intervals.push(time - before);
    if (++frames && time - since > 1000) {
      $("frames").textContent = String(Math.round(frames * 1000 / (time - since)));
      frames = 0;
      since = time;
    }
  }
  before = time;
  if (moving && now) drawPlane();
  if (look) { showLook(look); look = null; } else if (fresh) drawCurve();
  requestAnimationFrame(frame);
}

const percent = (x) => x === null ? "-" : `${(100 * x).toFixed(1)} %`;
let said = 0;

function showLook(news) {
  $("steps").textContent = news.step.toLocaleString("en");
  $("epoch").textContent = news.epoch.toFixed(1);
  $("loss").textContent = short(news.train.loss);
  $("right").textContent = percent(news.train.accuracy);
  $("test").textContent = percent(news.test.accuracy);
  const shapes = news.layers.map((layer) => layer.shape).join(" ");
  if (shapes !== $("layers").dataset.shapes) makeLayers(news.layers, shapes);
  drawLayers(news.layers);
  if (news.step && (performance.now() - said > 5000 || !playing)) {
    said = performance.now();
    const text = `Step ${news.step}, loss ${short(news.train.loss)}, ${percent(news.train.accuracy)} of the training points right`;
    say(text);
    $("plane").setAttribute("aria-label", `What the network says about each place. ${text}`);
    $("curve").setAttribute("aria-label", `Loss of training, now ${short(news.train.loss)} at step ${news.step}`);
  }
}

// ------------------------------------------------------------------------------ news

let pixels;

function start(news) {
  if (side !== news.side) {
    side = small.width = small.height = news.side;
    soft = small.getContext("2d");
    pixels = soft.createImageData(side, side);
    image = new Uint32Array(pixels.data.buffer);
    now = new Float32Array(side * side).fill(127.5);
    goal = new Uint8Array(side * side).fill(127);
  }
  if (!labels || document.hidden) show(news.choices);  // else they were chosen here
  spots = new Uint16Array(bytes(news.points).buffer);
  labels = bytes(news.labels);
  count = 0;
  look = last = null;
  $("steps").textContent = "compiling kernels";
  drawDots();
  drawCurve();
}

listen((news) => {
  if (news.kind === "start") start(news);
  else if (news.kind === "error") complain(news.error);
  else if (news.kind === "plays") setPlaying(news.playing);
  else {
    goal = bytes(news.grid);
    moving = true;
    look = last = news;
    addLoss(news.step, news.train.loss, news.test.loss);
  }
});

// -------------------------------------------------------------------------- controls

const form = $("settings");

function value(input) {
  if (input.tagName === "SELECT") return input.value;
  const x = Number(input.value);
  if (!("log" in input.dataset)) return x;
  const y = Number((10 ** x).toPrecision(2));
  return input.name === "lr" ? y : Math.round(y);
}

function showValues() {
  for (const input of form.querySelectorAll("input")) {
    const text = value(input).toLocaleString("en", { maximumSignificantDigits: 3 });
    input.parentElement.querySelector(".value").textContent = text;
    input.setAttribute("aria-valuetext", text);
  }
}

function show(choices) {
  for (const input of form.elements) {
    const x = choices[input.name];
    if (x !== undefined && value(input) !== x) {
      input.value = "log" in input.dataset ? Math.log10(x) : x;
    }
  }
  showValues();
}

const chosen = () => Object.fromEntries([...form.elements].map((x) => [x.name, value(x)]));

let asking = false, again = "";

/** While a question is on its way, only the last of those that follow is kept. */
async function askWith(question) {
  again = again === "start" ? again : question;
  if (asking) return;
  asking = true;
  while (again) {
    const next = again;
    again = "";
    await ask(next, chosen());
  }
  asking = false;
}

form.addEventListener("input", (event) => {
  showValues();
  askWith("live" in event.target.dataset ? "change" : "start");
});
form.addEventListener("submit", (event) => event.preventDefault());

function setPlaying(yes) {
  if (playing !== yes) $("play").textContent = yes ? "Pause" : "Play";
  playing = yes;
}

$("play").addEventListener("click", () => ask(playing ? "pause" : "play"));
$("step").addEventListener("click", () => ask("step"));
$("reset").addEventListener("click", () => askWith("start"));

onTheme(() => { mixColors(); drawDots(); look = last; fresh = true; });
mixColors();
requestAnimationFrame(frame);
