// What a GPT looks at, and what it expects next.

import { $, ask, bars, bytes, color, make, onTheme, say, training } from "./lab.js";

const CELL = 15;
let answer = null, maps, waiting = false;
const shown = (token) => token.replace(/ /g, "\u2423").replace(/\n/g, "\u21b5");

const at = (row, column) => {
  const [, heads, n] = answer.shape, layer = Number($("layer").value), head = Number($("head").value);
  return maps[((layer * heads + head) * n + row) * n + column] / 127;
};

function draw() {
  if (!answer) return;
  const n = answer.tokens.length, svg = $("map");
  const longest = Math.max(...answer.tokens.map((token) => token.length));
  const EDGE = 14 + 8 * longest, size = EDGE + n * CELL;
  svg.setAttribute("viewBox", `0 0 ${size} ${size}`);
  svg.setAttribute("width", size);
  svg.setAttribute("height", size);
  const parts = [];
  for (let i = 0; i < n; i++) {
    const middle = EDGE + i * CELL + 11;
    parts.push(make("text", { x: EDGE - 6, y: middle, "text-anchor": "end" }, shown(answer.tokens[i])));
    const turned = longest > 1 ? " rotate(-90)" : "";  // single characters stand upright
    parts.push(make("text", { transform: `translate(${middle - (turned ? 0 : 7)} ${EDGE - 6})${turned}` }, shown(answer.tokens[i])));
    for (let j = 0; j <= i; j++) {
      parts.push(make("rect", { x: EDGE + j * CELL, y: EDGE + i * CELL, width: CELL - 1, height: CELL - 1,
        fill: color.blue, "fill-opacity": Math.max(0.04, at(i, j)), "data-row": i }));
    }
  }
  svg.replaceChildren(...parts);
  $("row").max = n - 1;
  tell(Math.min(Number($("row").value), n - 1));
}

/** Say what a token takes from which. */
function tell(row) {
  $("row").value = row;
  const from = answer.tokens.slice(0, row + 1).map((token, j) => [at(row, j), j, token]);
  from.sort((a, b) => b[0] - a[0]);
  const text = `"${shown(answer.tokens[row])}" (token ${row}) takes ` + from.slice(0, 4)
    .map(([x, j, token]) => `${(100 * x).toFixed(0)} % from "${shown(token)}" (${j})`).join(", ");
  $("told").textContent = text;
  $("row").setAttribute("aria-valuetext", text);
  $("map").setAttribute("aria-label", `Attention of layer ${Number($("layer").value) + 1}, head ${Number($("head").value) + 1}: ${text}`);
  for (const rect of $("map").querySelectorAll("rect")) rect.classList.toggle("now", Number(rect.dataset.row) === row);
}

function choices(select, n) {
  if (select.options.length === n) return;
  select.replaceChildren(...Array.from({ length: n }, (_, i) => make("option", { value: i }, String(i + 1))));
}

async function look() {
  if (waiting) { waiting = "again"; return; }
  waiting = true;
  const text = $("text").value, found = await ask("look", { text });
  const again = waiting === "again";
  waiting = false;
  if (found) {
    answer = found;
    maps = bytes(found.maps);
    choices($("layer"), found.shape[0]);
    choices($("head"), found.shape[1]);
    $("row").max = found.tokens.length - 1;
    $("row").value = found.tokens.length - 1;  // not before there is room for it
    draw();
    bars($("bars"), found.next.map(([token, p]) => [shown(token), p]), 0, (i) => {
      $("text").value += found.next[i][0];
      look();
    });
    say(`Expected next: ${found.next.slice(0, 3).map(([token, p]) => `${shown(token)} ${(100 * p).toFixed(0)} %`).join(", ")}`);
  }
  if (again) look();
}

$("text").addEventListener("input", look);
for (const id of ["layer", "head"]) $(id).addEventListener("input", draw);
$("row").addEventListener("input", () => answer && tell(Number($("row").value)));
$("map").addEventListener("mouseover", (event) => event.target.dataset.row && tell(Number(event.target.dataset.row)));
onTheme(draw);
training(look);
