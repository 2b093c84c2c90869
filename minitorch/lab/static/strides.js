// Which storage positions the elements of views lie at; which shapes broadcast.

import { $, ask, make, say } from "./lab.js";

let steps = [];
const tuple = (sizes) => `(${sizes.join(", ")}${sizes.length === 1 ? "," : ""})`;

/** The index of element `n` in row-major order. */
function indexOf(n, shape) {
  const index = [];
  for (let d = shape.length - 1; d >= 0; d--) {
    index.unshift(n % shape[d]);
    n = Math.floor(n / shape[d]);
  }
  return index;
}

function cell(step, n) {
  const position = step.positions[n], index = indexOf(n, step.shape);
  return make("button", {
    type: "button", class: "cell", tabindex: n ? -1 : 0, "data-at": step.number, "data-n": n,
    "data-position": position, "aria-label": `element ${tuple(index)} is ${step.storage[position]}, at position ${position}`,
  }, String(step.storage[position]));
}

/** Rows of the last dimension; the dimensions before it as blocks with a gap. */
function cells(step) {
  const width = step.shape.at(-1) ?? 1, rows = step.shape.at(-2) ?? 1;
  const out = make("div", { class: "blocks", role: "group", "aria-label": `elements of ${step.text}` });
  for (let first = 0; first < step.positions.length; first += width * rows) {
    const block = make("div", { class: "block", style: `grid-template-columns:repeat(${width},auto)` });
    for (let n = first; n < Math.min(first + width * rows, step.positions.length); n++) block.append(cell(step, n));
    out.append(block);
  }
  if (!step.positions.length) out.append("no elements");
  return out;
}

function table(step) {
  return make("p", { class: "soft", style: "margin:0 0 5px" },
    make("code", { class: "named" }, step.text),
    ` shape ${tuple(step.shape)}, strides ${tuple(step.strides)}, offset ${step.offset}, `
    + (step.contiguous ? "contiguous" : "not contiguous")
    + (step.shares ? "" : "; a copy, in a storage of its own"));
}

/** Mark where an element lies, in the storage and in all views that share it. */
function point(button) {
  const step = steps[button.dataset.at], n = Number(button.dataset.n);
  const index = indexOf(n, step.shape), position = step.positions[n];
  for (const other of document.querySelectorAll(".cell, .place")) {
    const same = other.dataset.at === undefined ? step.shares : steps[other.dataset.at].shares === step.shares
      && (step.shares || other.dataset.at === button.dataset.at);
    other.classList.toggle("now", same && Number(other.dataset.position) === position);
  }
  const terms = index.map((i, d) => `${i} * ${step.strides[d]}`);
  $("formula").textContent = `${step.text} ${tuple(index)}: ${[step.offset, ...terms].join(" + ")} = ${position}`;
}

async function view() {
  const answer = await ask("views", { shape: $("shape").value, text: $("view").value });
  if (!answer) return;
  steps = answer.steps.map((step, number) => ({ ...step, number }));
  $("steps").replaceChildren(...steps.map((step) => make("div", {}, table(step), cells(step))));
  const used = new Set(steps.at(-1).shares ? steps.at(-1).positions : []);
  $("storage").replaceChildren(...steps[0].storage.map((value, i) => make("span", {
    class: used.has(i) ? "place used" : "place", "data-position": i,
  }, String(value))));
  $("storage-title").textContent = `Storage of t: ${steps[0].storage.length} numbers, of which the view shows ${used.size}`;
  $("formula").textContent = "";
  const last = steps.at(-1);
  say(`${last.text}: shape ${tuple(last.shape)}, strides ${tuple(last.strides)}, offset ${last.offset}`);
}

async function compare() {
  const answer = await ask("broadcast", { one: $("one").value, other: $("other").value });
  if (!answer) return;
  const dims = answer.rows.length;
  $("rules").replaceChildren(...answer.rows.map((row, i) => make("tr", { class: row.rule.includes("differ") ? "now" : "" },
    make("td", {}, String(i - dims)), ...row.sizes.map((n) => make("td", {}, n === null ? "-" : String(n))),
    make("td", {}, row.rule))));
  $("verdict").textContent = answer.shape
    ? `Both expand to ${tuple(answer.shape)}; the strides are then ${answer.strides.map(tuple).join(" and ")}.`
    : answer.why;
  say($("verdict").textContent);
}

$("steps").addEventListener("focusin", (event) => event.target.matches(".cell") && point(event.target));
$("steps").addEventListener("mouseover", (event) => event.target.matches(".cell") && point(event.target));
$("steps").addEventListener("keydown", (event) => {
  const { at, n } = event.target.dataset, shape = at && steps[at].shape;
  if (!shape) return;
  const row = shape.at(-1) ?? 1;
  const way = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: row, ArrowUp: -row }[event.key];
  const next = way && document.querySelector(`.cell[data-at="${at}"][data-n="${Number(n) + way}"]`);
  if (!next) return;
  event.preventDefault();
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
});
for (const [form, run] of [["viewing", view], ["pair", compare]]) {
  $(form).addEventListener("submit", (event) => { event.preventDefault(); run(); });
  run();
}
