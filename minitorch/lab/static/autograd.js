// The graph of what was typed, and its backward pass, one node at a time.

import { $, ask, make, say, short } from "./lab.js";

let graph = null, done = 0;

function numbers(value) {
  if (value === null || value === undefined) return "-";
  if (typeof value === "number") return short(value);
  const text = `[${value.map(numbers).join(", ")}]`;
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

const title = (node) => node.op ? node.op + (node.name ? ` (${node.name})` : "") : node.name || "number";

const cut = (text) => text.length > 18 ? `${text.slice(0, 16)}..` : text;

/** Inputs to the left of what uses them: the longest way from the leaves counts. */
function places(nodes) {
  const column = nodes.map(() => 0);
  for (let i = nodes.length - 1; i >= 0; i--) {
    for (const j of nodes[i].inputs) if (j !== null) column[i] = Math.max(column[i], column[j] + 1);
  }
  nodes.forEach((node, i) => {  // a leaf stands right before its first use
    const users = nodes.flatMap((n, k) => n.inputs.includes(i) ? [column[k]] : []);
    if (!node.op && users.length) column[i] = Math.min(...users) - 1;
  });
  const rows = [], y = nodes.map(() => 0);
  nodes.forEach((node, i) => {
    const users = nodes.flatMap((n, k) => n.inputs.includes(i) ? [y[k] + n.inputs.indexOf(i)] : []);
    const wish = users.length ? Math.round(users.reduce((a, b) => a + b) / users.length) : 0;
    const taken = rows[column[i]] ||= new Set();
    y[i] = wish;
    while (taken.has(y[i])) y[i]++;
    taken.add(y[i]);
  });
  return nodes.map((node, i) => ({ x: column[i], y: y[i] }));
}

const W = 172, H = 88, BOX = 144, TALL = 66;

function draw() {
  const at = places(graph.nodes), svg = $("graph");
  const width = (Math.max(...at.map((p) => p.x)) + 1) * W, height = (Math.max(...at.map((p) => p.y)) + 1) * H;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  svg.style.minWidth = `${0.75 * width}px`;  // narrower only as long as it can be read
  svg.style.height = "auto";
  svg.replaceChildren();
  graph.nodes.forEach((node, i) => node.inputs.forEach((j) => {
    if (j === null) return;
    const [x1, y1] = [at[j].x * W + 8 + BOX, at[j].y * H + 8 + TALL / 2];
    const [x2, y2] = [at[i].x * W + 8, at[i].y * H + 8 + TALL / 2], mid = (x1 + x2) / 2;
    svg.append(make("path", { class: "edge", "data-edge": `${i}-${j}`, fill: "none",
      d: `M${x1} ${y1} C${mid} ${y1} ${mid} ${y2} ${x2} ${y2}` }));
  }));
  graph.nodes.forEach((node, i) => {
    svg.append(make("g", { "data-node": i, class: node.op ? "node" : "node leaf",
      transform: `translate(${at[i].x * W + 8} ${at[i].y * H + 8})` },
    make("rect", { width: BOX, height: TALL, rx: 8 }),
    make("text", { x: 9, y: 19, class: "name" }, cut(title(node))),
    make("text", { x: 9, y: 38 }, cut(numbers(node.value))),
    make("text", { x: 9, y: 57, class: "grad" }, ""),
    make("title", {}, `${title(node)} ${node.text || ""}: ${numbers(node.value)}`)));
  });
  $("rows").replaceChildren(...graph.nodes.map((node) => make("tr", { "data-row": node.id },
    make("td", {}, title(node)), make("td", {}, node.text || "given"),
    make("td", {}, node.shape ? `(${node.shape.join(", ")})` : "-"),
    make("td", {}, numbers(node.value)), make("td", { class: "grad" }, ""))));
}

function sentence(step) {
  const node = graph.nodes[step.id], name = title(node);
  const sends = step.sends.map((s) => `${numbers(s.grad)} to ${title(graph.nodes[s.to])}`);
  const start = `${name} has its whole gradient, ${numbers(step.grad)}`;
  return sends.length ? `${start}. By the chain rule it sends ${sends.join(", and ")}.` : `${start}, in .grad.`;
}

/** Show the state after the first `to` steps. */
function show(to) {
  done = to;
  const steps = graph.steps.slice(0, done), now = steps[done - 1];
  const grads = new Map(steps.map((step) => [step.id, step.grad]));
  for (const node of graph.nodes) {
    const box = $("graph").querySelector(`[data-node="${node.id}"]`);
    const text = grads.has(node.id) ? numbers(grads.get(node.id)) : "";
    box.querySelector(".grad").textContent = text && cut(`grad ${text}`);
    box.classList.toggle("now", now?.id === node.id);
    box.classList.toggle("done", grads.has(node.id));
    const row = $("rows").children[node.id];
    row.className = now?.id === node.id ? "now" : "";
    row.lastChild.textContent = text;
  }
  for (const edge of $("graph").querySelectorAll(".edge")) {
    edge.classList.toggle("now", now !== undefined && edge.dataset.edge.startsWith(`${now.id}-`));
  }
  const text = now ? sentence(now) : "The backward pass begins at the result, with the gradient 1"
    + (graph.scalar ? "." : " for each of its numbers, as if they were added up.");
  $("said").textContent = text;
  $("where").textContent = `step ${done} of ${graph.steps.length}`;
  $("back").disabled = $("first").disabled = done === 0;
  $("next").disabled = $("last").disabled = done === graph.steps.length;
  say(now ? `Step ${done} of ${graph.steps.length}: ${text}` : `A graph of ${graph.nodes.length} nodes. ${text}`);
}

async function record() {
  const answer = await ask("graph", { text: $("text").value });
  if (!answer) return;
  graph = answer;
  draw();
  show(0);
}

$("typed").addEventListener("submit", (event) => { event.preventDefault(); record(); });
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.ctrlKey) record();
});
const go = { first: () => 0, back: () => done - 1, next: () => done + 1, last: () => graph.steps.length };
for (const [name, to] of Object.entries(go)) {
  $(name).addEventListener("click", () => graph && show(Math.max(0, Math.min(to(), graph.steps.length))));
}
record();
