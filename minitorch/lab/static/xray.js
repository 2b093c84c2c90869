// A kernel's x-ray, lane by lane: the scene comes once, and all the rest happens here.

import { $, ask, make, say, send } from "./lab.js";

const KINDS = ["global load", "global store", "shared load", "shared store"];
const MOST = 3;  // pictures at once
const SECTOR = 32, WORD = 4, BANKS = 32;
const lanes = [...Array(32).keys()];
let scene = null, line = null, lines = [];

const at = (id) => Number($(id).value);
const taken = (access) => access.sectors ?? access.wavefronts;
const tuple = (index) => `(${index.join(", ")})`;
const has = (mask, lane) => (mask >>> lane) & 1;

/** Lanes as text: "0 to 15, 20". */
function ranges(list) {
  const out = [];
  for (const n of list) if (out.at(-1)?.[1] === n - 1) out.at(-1)[1] = n; else out.push([n, n]);
  return out.map(([a, b]) => a === b ? a : `${a} to ${b}`).join(", ");
}

// ------------------------------------------------------------------------- the source

function row(entry, indent) {
  const code = entry.text.slice(indent) || " ", cells = entry.accesses.length ? entry.accesses : [["", "", "", ""]];
  const shown = entry.seen
    ? make("button", { type: "button", title: code, "data-line": lines.push(entry) - 1, tabindex: -1, onclick: () => choose(entry) }, code)
    : make("span", { class: "soft" }, code);
  const start = [make("td", {}, String(entry.line)), make("td", { class: "code" }, shown), ...entry.flow.map((x) => make("td", {}, x))];
  return cells.map((access, i) => {
    const wasted = access[0] && entry[access[0]].ideal < taken(entry[access[0]]);
    return make("tr", { class: "races" in entry ? "race" : "", "data-row": i ? null : entry.line },
      ...(i ? [make("td", { colspan: 4 })] : start), ...access.map((x, k) => make("td", { class: wasted && k > 1 ? "bad" : "" }, x)));
  });
}

function source() {
  lines = [];
  const worth = scene.functions.filter((f, i) => !i || f.lines.some((x) => "races" in x || x.accesses.length));
  $("source").replaceChildren(...worth.map((f, i) => {
    const indent = Math.min(...f.lines.filter((x) => x.text.trim()).map((x) => x.text.search(/\S/)));
    const head = ["line", "source", ...scene.columns].map((x) => make("th", { scope: "col" }, x));
    return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `source of ${f.name}` },
      make("p", { class: "soft", style: "margin:8px 0 2px", title: f.file }, `${f.file.split(/[\\/]/).pop()}${i ? ` ${f.name}` : ""}`),
      make("table", { class: "lines" }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...f.lines.flatMap((x) => row(x, indent)))));
  }));
}

/** The line that wastes most, else the first that asks for something. */
function worst() {
  const waste = (x) => Math.max(-1, ...KINDS.filter((kind) => x[kind]).map((kind) => taken(x[kind]) - x[kind].ideal || taken(x[kind]) / 1e9));
  return lines.reduce((a, b) => waste(b) > waste(a) ? b : a);
}

function choose(entry) {
  line = entry;
  for (const button of $("source").querySelectorAll("button")) {
    const now = lines[button.dataset.line] === line;
    button.tabIndex = now ? 0 : -1;
    button.setAttribute("aria-pressed", now);
    button.closest("tr").classList.toggle("now", now);
  }
  $("visit").value = $("access").value = 0;
  draw();
}

// ----------------------------------------------------------------------- the pictures

const X = (lane) => 8 + 22 * lane;
const touched = (first, width, unit) => {
  const out = [];
  for (let n = Math.floor(first / unit); n <= Math.floor((first + width - 1) / unit); n++) out.push(n);
  return out;
};

function box(x, y, width, height, kind, text, lane) {
  const now = lane === at("lane") || (Array.isArray(lane) && lane.includes(at("lane")));
  const some = Array.isArray(lane) ? lane[0] : lane;
  return [make("rect", { x, y, width, height, class: `${kind}${now ? " now" : ""}`, "data-lane": some ?? null }),
    ...(text === "" ? [] : [make("text", { x: x + width / 2, y: y + height / 2 + 4, "text-anchor": "middle",
      class: kind === "off" ? "" : "on", "data-lane": some ?? null, "pointer-events": "none" }, String(text))])];
}

/** Lanes above, the sectors that they touch below; what they use of these is filled. */
function sectorsOf(request) {
  const firsts = new Map(request.lanes), parts = [];
  const all = [...new Set(request.lanes.flatMap(([, first]) => touched(first, request.bytes, SECTOR)))].sort((a, b) => a - b);
  const gaps = all.map((s, i) => i && all[i - 1] !== s - 1 ? 6 : 1), space = gaps.reduce((a, b) => a + b, 0);
  const width = Math.min(84, (704 - space) / all.length), places = new Map();
  let x = 8;
  all.forEach((s, i) => {
    x += gaps[i];
    places.set(s, x);
    parts.push(make("rect", { x, y: 92, width, height: 26, class: "empty" }));
    if (width > 40 || i % Math.ceil(44 / width) === 0) parts.push(make("text", { x, y: 132 }, String(s * SECTOR)));
    x += width;
  });
  for (const lane of lanes) {
    if (!firsts.has(lane)) { parts.push(...box(X(lane), 4, 20, 22, "off", lane, lane)); continue; }
    const first = firsts.get(lane), kind = all.indexOf(Math.floor(first / SECTOR)) % 2 ? "odd" : "even";
    parts.push(...box(X(lane), 4, 20, 22, kind, lane, lane));
    for (const s of touched(first, request.bytes, SECTOR)) {
      const from = Math.max(first, s * SECTOR), to = Math.min(first + request.bytes, (s + 1) * SECTOR);
      const left = places.get(s) + width * (from - s * SECTOR) / SECTOR, wide = width * (to - from) / SECTOR;
      const now = lane === at("lane") ? " now" : "";
      parts.push(make("rect", { x: left, y: 92, width: Math.max(1, wide - 0.6), height: 26, class: `${kind} used`, "data-lane": lane }),
        make("path", { d: `M${X(lane) + 10} 26C${X(lane) + 10} 60 ${left + wide / 2} 58 ${left + wide / 2} 92`, class: kind + now }));
    }
  }
  return { parts, height: 138 };
}

/** Banks as columns; in each the words that lanes want of it, which take a turn each. */
function banksOf(request) {
  const parts = [make("text", { x: 48, y: 14, "text-anchor": "end" }, "bank"), ...lanes.map((b) => make("text", { x: 63 + 20.7 * b, y: 14, "text-anchor": "middle" }, String(b)))];
  let y = 20, turn = 0;
  for (let start = 0; start < 32; start += request.together) {
    const banks = new Map();
    for (const [lane, first] of request.lanes) {
      if (lane < start || lane >= start + request.together) continue;
      for (const word of touched(first, request.bytes, WORD)) {
        const words = banks.get(word % BANKS) || banks.set(word % BANKS, new Map()).get(word % BANKS);
        words.set(word, [...(words.get(word) || []), lane]);
      }
    }
    const height = Math.max(0, ...[...banks.values()].map((words) => words.size));
    for (let i = 0; i < height; i++) parts.push(make("text", { x: 48, y: y + 18 * i + 13, "text-anchor": "end" }, `turn ${++turn}`));
    for (const [bank, words] of banks) {
      [...words].forEach(([, who], i) => parts.push(...box(53.5 + 20.7 * bank, y + 18 * i, 19, 16, i ? "odd" : "even", who.length > 1 ? `${who[0]}+` : who[0], who)));
    }
    y += 18 * height + (height ? 4 : 0);
  }
  return { parts, height: y + 4 };
}

/** Which lanes are there, and where they go on. */
function lanesOf(visit) {
  const parts = lanes.flatMap((lane) => {
    const way = visit.ways.findIndex(([, mask]) => has(mask, lane));
    return box(X(lane), 4, 20, 22, has(visit.lanes, lane) ? (way > 0 ? "odd" : "even") : "off", lane, lane);
  });
  return { parts, height: 32 };
}

function picture({ parts, height }, text) {
  return make("figure", { class: "picture" }, make("figcaption", {}, text), make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": text },
    make("svg", { viewBox: `0 0 720 ${height}`, role: "img", "aria-label": `${text} The table below says which lane wants what.` }, ...parts)));
}

// --------------------------------------------------------------------------- in words

function inWords(r) {
  const start = `${r.kind} of ${r.array}: ${r.lanes.length > 1 ? "lanes" : "lane"} ${ranges(r.lanes.map(([lane]) => lane))}, ${r.bytes} bytes each,`;
  return r.together
    ? `${start} take ${r.wavefronts} ${r.wavefronts > 1 ? "wavefronts" : "wavefront"}; ${r.ideal} would do if no two words were in one bank.`
    : `${start} touch ${r.sectors} ${r.sectors > 1 ? "sectors" : "sector"}; ${r.ideal} would hold what they use.`;
}

function wants(r, lane) {
  const first = new Map(r.lanes).get(lane);
  if (first === undefined) return "-";
  const unit = r.together ? WORD : SECTOR, all = touched(first, r.bytes, unit);
  const where = r.together ? `bank ${ranges(all.map((word) => word % BANKS))}` : `sector ${ranges(all)}`;
  return `bytes ${first} to ${first + r.bytes - 1}, ${where}`;
}

const goes = (to) => to < 0 ? "leaves the function" : `goes on at line ${to}`;
const way = (visit, lane) => visit.ways.filter(([, mask]) => has(mask, lane)).map(([to]) => goes(to)).join("");

function draw() {
  const block = scene.launch.sampled[at("block")], warp = at("warp");
  const seen = line.seen.find((x) => String(x.block) === String(block) && x.warp === warp);
  const visits = seen?.visits ?? [{ lanes: 0, ways: [], requests: [] }];
  $("visit").max = visits.length - 1;
  $("visit").value = Math.min(at("visit"), visits.length - 1);  // the browser does so later
  const visit = visits[at("visit")], active = lanes.filter((lane) => has(visit.lanes, lane));
  $("where").textContent = `Line ${line.line}, warp ${warp} of block ${tuple(block)}`;
  $("statement").textContent = line.text.trim();
  const kept = seen && seen.times > visits.length ? `, of which the first ${visits.length} can be shown` : "";
  const parts = visit.ways.length > 1 ? visit.ways.map(([to, mask]) => `lanes ${ranges(lanes.filter((n) => has(mask, n)))} ${to < 0 ? "leave the function" : `go on at line ${to}`}`) : [];
  $("told").textContent = seen
    ? `Visit ${at("visit") + 1} of ${seen.times}${kept}: active are ${active.length} of 32 lanes${active.length < 32 ? ` (${ranges(active)})` : ""}.`
      + (parts.length ? ` They part: ${parts.join("; ")}.` : "")
    : "This warp does not come to this line.";
  const all = visit.requests.length;
  $("access").max = Math.max(0, all - MOST);
  $("access").parentElement.hidden = all <= MOST;
  const shown = visit.requests.slice(at("access"), at("access") + MOST);
  $("access").setAttribute("aria-valuetext", `${at("access") + 1} to ${at("access") + shown.length} of ${all}`);
  if (all > MOST) $("told").textContent += ` Accesses ${$("access").getAttribute("aria-valuetext")}:`;
  const pictures = shown.map((r) => picture(r.together ? banksOf(r) : sectorsOf(r), inWords(r)));
  if (visit.ways.length > 1 || !pictures.length) pictures.unshift(picture(lanesOf(visit), "Lanes that are active, by where they go on."));
  $("pictures").replaceChildren(...pictures);
  $("visit").setAttribute("aria-valuetext", $("told").textContent);
  const heads = shown.map((r) => `${r.kind} of ${r.array}`);
  const cells = (lane) => [has(visit.lanes, lane) ? "active" : "not active", ...shown.map((r) => wants(r, lane)), way(visit, lane)];
  $("head").replaceChildren(make("tr", {}, ...["lane", "", ...heads, "then"].map((x) => make("th", { scope: "col" }, x))));
  $("lanes").replaceChildren(...lanes.map((lane) => make("tr", { class: lane === at("lane") ? "now" : "" },
    make("th", { scope: "row" }, String(lane)), ...cells(lane).map((x) => make("td", {}, x)))));
  const own = cells(at("lane")).map((x, i) => heads[i - 1] && x !== "-" ? `${heads[i - 1]}, ${x}` : x);
  $("one").textContent = `Lane ${at("lane")}: ${own.filter((x) => x && x !== "-").join("; ")}`;
  $("lane").setAttribute("aria-valuetext", $("one").textContent);
}

// --------------------------------------------------------------------------- controls

function show() {
  $("seen").hidden = false;
  $("title").textContent = scene.title;
  const races = scene.functions.flatMap((f) => f.lines).filter((x) => "races" in x);
  $("problems").textContent = [...races.map((x) => `race in line ${x.line}, ${x.races} times: ${x.race}`), scene.ended].filter(Boolean).join("\n");
  $("facts").replaceChildren(...scene.facts.map((text) => make("p", { style: "margin:6px 0 0" }, text)));
  const { sampled, threads } = scene.launch, warps = Math.ceil(threads.reduce((a, b) => a * b) / 32);
  $("block").replaceChildren(...sampled.map((index, i) => make("option", { value: i }, tuple(index))));
  $("warp").replaceChildren(...Array.from({ length: warps }, (_, i) => make("option", { value: i }, String(i))));
  source();
  if (lines.length) choose(worst());
}

async function look() {
  const kernel = $("kernel").value, start = performance.now();
  const tell = () => { $("line").textContent = `Three blocks of ${kernel} run in the simulator, and it is compiled: ${Math.round((performance.now() - start) / 1000)} s`; };
  const clock = setInterval(tell, 1000);
  tell();
  say($("line").textContent);
  $("look").disabled = true;
  $("stop").disabled = false;
  const answer = await ask("look", { kernel });
  clearInterval(clock);
  $("look").disabled = false;
  $("stop").disabled = true;
  $("line").textContent = answer ? `Seen in ${((performance.now() - start) / 1000).toFixed(1)} s.` : "";
  if (!answer) return;
  scene = answer;
  show();
  say(`${scene.title}. ${$("problems").textContent} ${$("where").textContent}: ${$("told").textContent}`);
}

$("which").addEventListener("submit", (event) => { event.preventDefault(); look(); });
$("stop").addEventListener("click", () => send("stop"));
for (const id of ["block", "warp", "visit", "access", "lane"]) $(id).addEventListener("input", () => draw());
$("pictures").addEventListener("mouseover", (event) => {
  const lane = event.target.dataset.lane;
  if (lane === undefined || lane === $("lane").value) return;
  $("lane").value = lane;
  draw();
});
$("source").addEventListener("keydown", (event) => {
  const way = { ArrowDown: 1, ArrowUp: -1 }[event.key], number = event.target.dataset.line;
  const next = way && number && $("source").querySelector(`[data-line="${Number(number) + way}"]`);
  if (!next) return;
  event.preventDefault();
  next.focus();
  next.click();
});
ask("names").then((answer) => answer && $("names").replaceChildren(...answer.names.map((value) => make("option", { value }))));
