// Training runs side by side: their curves, also while they train, and their settings.

import { $, ask, complain, listen, make, say, short } from "./lab.js";

const COLORS = ["#0077bb", "#cc5500", "#009988", "#cc4499", "#888833", "#8866dd"];
const DASHES = ["", "9 4", "2 4", "9 4 2 4"];
const LEFT = 62, TOP = 10, W = 646, H = 272;
let runs = null, found = null, asking = false, again = false, said = 0, lost = [];

const chosen = () => [...$("list").querySelectorAll("input:checked")].map((box) => box.value);
const style = (i) => ({ fill: "none", "stroke-width": 2, stroke: COLORS[i % 6],
  "stroke-dasharray": DASHES[Math.floor(i / 6 + i) % 4] });

// -------------------------------------------------------------------------- the list

/** Boxes for runs that are new; those that are there stay, and keep the focus. */
function list(news) {
  $("none").textContent = news.problem;
  const names = news.runs.map((run) => run.name), first = runs === null;
  const boxes = new Map([...$("list").querySelectorAll("label")].map((x) => [x.dataset.run, x]));
  for (const [name, label] of boxes) if (!names.includes(name)) gone(name, label);
  const newest = [...news.runs].sort((a, b) => b.written - a.written).slice(0, 4).map((run) => run.name);
  for (const run of news.runs) {
    const had = boxes.get(run.name) || make("label", { "data-run": run.name },
      make("input", { type: "checkbox", value: run.name, onchange: () => { lost = []; compare(); } }), ` ${run.name} `, make("span", { class: "soft" }));
    if (first) had.firstChild.checked = newest.includes(run.name);
    had.lastChild.textContent = `${run.steps.toLocaleString("en")} steps${run.trains ? ", training" : ""}`;
    if (!boxes.has(run.name)) $("list").append(had);
  }
  runs = news.runs;
}

function gone(name, label) {
  if (label.firstChild.checked) lost.push(name);
  label.remove();
}

/** What is wrong with the runs that are chosen, or were until they went. */
function warn() {
  const problems = runs.filter((run) => run.problem && chosen().includes(run.name)).map((run) => run.problem);
  complain([...lost.map((name) => `${name} is gone: it was removed, or has another name now`), ...problems].join("\n"));
}

// ------------------------------------------------------------------------ the curves

/** About four round numbers from `low` to `high`. */
function ticks(low, high) {
  const rough = (high - low) / 4 || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((n) => n * power >= rough * 0.99);
  const out = [];
  for (let k = Math.ceil(low / step - 1e-6); k * step <= high + 1e-6 * step; k++) out.push(k * step || 0);
  return out;
}

const scale = { x: 1, low: 0, high: 1 };
const px = (x) => LEFT + W * x / scale.x, py = (y) => TOP + H * (scale.high - y) / (scale.high - scale.low);

function draw() {
  const ys = found.curves.flatMap((c) => c.y);
  scale.x = Math.max(1e-9, ...found.curves.flatMap((c) => c.x.slice(-1)));
  scale.low = Math.min(...ys, Infinity);
  scale.high = Math.max(...ys, -Infinity);
  if (!ys.length) [scale.low, scale.high] = [0, 1];
  if (scale.low === scale.high) scale.high += Math.abs(scale.high) || 1;
  const parts = ticks(scale.low, scale.high).flatMap((y) => [
    make("line", { x1: LEFT, x2: LEFT + W, y1: py(y), y2: py(y), class: "rule" }),
    make("text", { x: LEFT - 6, y: py(y) + 4, "text-anchor": "end" }, short(y))]);
  for (const x of ticks(0, scale.x)) {
    parts.push(make("text", { x: px(x), y: TOP + H + 18, "text-anchor": "middle" }, x.toLocaleString("en")));
  }
  parts.push(make("text", { x: LEFT + W, y: TOP + H + 34, "text-anchor": "end" }, $("by").value));
  found.curves.forEach((c, i) => parts.push(make("path", { ...style(i), "data-run": c.name,
    d: c.x.map((x, k) => `${k ? "L" : "M"}${px(x).toFixed(1)} ${py(c.y[k]).toFixed(1)}`).join("") }),
  make("circle", { cx: px(c.x.at(-1) ?? -99), cy: py(c.y.at(-1) ?? 0), r: 3, fill: COLORS[i % 6] })));
  parts.push(make("line", { id: "cross", y1: TOP, y2: TOP + H, class: "cross" }));
  $("curves").replaceChildren(...parts);
  const text = found.curves.map((c) => c.x.length ? `${c.name} ends at ${short(c.last)}${c.best === null ? "" : `, best ${short(c.best)}`}` : `${c.name} has none`);
  $("curves").setAttribute("aria-label", `${found.metric} along ${$("by").value}: ${text.join("; ") || "no run is chosen"}`);
  $("ends").replaceChildren(...found.curves.map((c, i) => make("tr", {},
    make("td", {}, make("svg", { width: 44, height: 10, "aria-hidden": "true" }, make("path", { ...style(i), d: "M0 5H44" }))),
    make("td", {}, c.name), make("td", {}), make("td", {}, c.last === null ? `no ${found.metric} along ${$("by").value}` : short(c.last)),
    make("td", {}, short(c.best)))));
  readOff();
}

/** What each curve says at the place of the slider: its last value up to there. */
function readOff() {
  const x = Number($("at").value) * scale.x;
  $("there").textContent = `at ${x.toLocaleString("en", { maximumFractionDigits: scale.x < 20 ? 2 : 0 })} ${$("by").value}`;
  const told = found.curves.map((c, i) => {
    const before = c.x.filter((at) => at <= x * (1 + 1e-9)).length;
    const text = before ? short(c.y[before - 1]) : "-";
    $("ends").children[i].children[2].textContent = text;
    return `${c.name} ${text}`;
  });
  $("at").setAttribute("aria-valuetext", [$("there").textContent, ...told].join(", "));
  for (const end of ["x1", "x2"]) $("cross").setAttribute(end, px(x));
}

function settings() {
  const only = $("differing").checked, rows = found.settings.filter((row) => row.differs || !only);
  $("head").replaceChildren(make("tr", {}, ...["setting", ...found.curves.map((c) => c.name)].map((text) => make("th", { scope: "col" }, text))));
  $("settings").replaceChildren(...rows.map((row) => make("tr", { class: row.differs ? "now" : "" },
    make("th", { scope: "row" }, row.name, row.differs ? make("span", { class: "unseen" }, " (differs)") : ""),
    ...row.values.map((value) => make("td", {}, value)))));
  if (!rows.length) $("settings").append(make("tr", {}, make("td", {}, found.curves.length > 1 ? "They do not differ." : "Tick two runs, to compare.")));
}

/** While a question is on its way, one more is kept. */
async function compare() {
  again = true;
  if (asking) return;
  asking = true;
  while (again) {
    again = false;
    const answer = await ask("compare", { runs: chosen(), metric: $("metric").value, by: $("by").value });
    if (!answer) break;
    found = answer;
    warn();
    const options = [...$("metric").options].map((option) => option.value);
    if (String(options) !== String(found.metrics)) $("metric").replaceChildren(...found.metrics.map((name) => make("option", {}, name)));
    $("metric").value = found.metric;
    draw();
    settings();
    if (performance.now() - said < 5000) continue;
    said = performance.now();
    say($("curves").getAttribute("aria-label"));
  }
  asking = false;
}

listen((news) => {
  list(news);
  compare();
});
for (const id of ["metric", "by"]) $(id).addEventListener("change", compare);
$("differing").addEventListener("change", () => found && settings());
$("at").addEventListener("input", () => found && readOff());
$("curves").addEventListener("pointermove", (event) => {
  if (!found) return;
  const box = $("curves").getBoundingClientRect();
  $("at").value = ((event.clientX - box.left) * 720 / box.width - LEFT) / W;
  readOff();
});
