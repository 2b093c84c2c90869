// A drawn digit: probabilities, and the planes behind each convolution.

import { $, ask, bars, bytes, make, onTheme, paint, say, training } from "./lab.js";

const pad = $("pad").getContext("2d", { willReadFrequently: true });
const small = make("canvas", { width: 28, height: 28 }).getContext("2d", { willReadFrequently: true });
const pen = { x: 140, y: 140, down: false };
let number = 0, waiting = false, drawing = false, drawn = false, planes = [];

function clear() {
  pad.fillStyle = "#000";
  pad.fillRect(0, 0, 280, 280);
  pad.strokeStyle = "#fff";
  pad.lineWidth = 22;
  pad.lineCap = pad.lineJoin = "round";
  drawn = false;
  $("label").textContent = "";
}

function pixels() {
  small.imageSmoothingQuality = "high";
  small.drawImage(pad.canvas, 0, 0, 28, 28);
  const data = small.getImageData(0, 0, 28, 28).data;
  let text = "";
  for (let i = 0; i < data.length; i += 4) text += String.fromCharCode(data[i]);
  return btoa(text);
}

async function guess() {
  if (waiting || !drawn) return;
  waiting = true;
  const answer = await ask("guess", { pixels: pixels() });
  waiting = false;
  if (!answer) return;
  const p = answer.probabilities, best = p.indexOf(Math.max(...p));
  bars($("bars"), p.map((x, i) => [String(i), x]), best);
  planes = answer.planes;
  drawPlanes();
  if (!drawing && !pen.down) say(`The network takes it for a ${best}, probability ${(100 * p[best]).toFixed(0)} %`);
}

function drawPlanes() {
  $("planes").replaceChildren(...planes.map((layer, i) => {
    const [n, h, w] = layer.shape, data = new Int8Array(bytes(layer.data).buffer);
    const sums = Array.from({ length: n }, (_, k) => [data.subarray(k * h * w, (k + 1) * h * w).reduce((a, b) => a + b, 0), k + 1]);
    const most = sums.sort((a, b) => b[0] - a[0]).slice(0, 3).map(([, k]) => k).join(", ");
    const text = `convolution ${i + 1}: ${n} planes of ${h} x ${w}; planes ${most} say most`;
    const group = make("div", { class: "planes", role: "img", "aria-label": text });
    for (let k = 0; k < n; k++) {
      const canvas = make("canvas");
      paint(canvas, data.subarray(k * h * w, (k + 1) * h * w), w);
      group.append(canvas);
    }
    return make("div", {}, make("p", { class: "soft" }, text), group);
  }));
}

function stroke(event) {
  const box = pad.canvas.getBoundingClientRect();
  const x = (event.clientX - box.left) * 280 / box.width, y = (event.clientY - box.top) * 280 / box.height;
  if (!drawing) pad.lineTo(x - 0.1, y);  // a click alone makes a dot
  drawing = true;
  pad.lineTo(x, y);
  pad.stroke();
  drawn = true;
  guess();
}

pad.canvas.addEventListener("pointerdown", (event) => {
  pad.canvas.setPointerCapture(event.pointerId);
  pad.beginPath();
  stroke(event);
});
pad.canvas.addEventListener("pointermove", (event) => drawing && stroke(event));
pad.canvas.addEventListener("pointerup", () => { drawing = false; waiting = false; guess(); });
// Without a pointer: arrow keys move the pen, and draw while it is down.
pad.canvas.addEventListener("keydown", (event) => {
  const way = { ArrowLeft: [-10, 0], ArrowRight: [10, 0], ArrowUp: [0, -10], ArrowDown: [0, 10], " ": [0, 0] }[event.key];
  if (!way) return;
  event.preventDefault();
  if (event.key === " ") [pen.down, waiting] = [!pen.down, false];
  pad.beginPath();
  pad.moveTo(pen.x, pen.y);
  [pen.x, pen.y] = [pen.x + way[0], pen.y + way[1]].map((x) => Math.min(270, Math.max(10, x)));
  $("pen").style.cssText = `left:${pen.x / 2.8}%;top:${pen.y / 2.8}%`;
  say(`pen ${pen.down ? "down" : "up"} at column ${pen.x / 10}, row ${pen.y / 10} of 27`);
  if (pen.down) {
    pad.lineTo(pen.x - 0.1, pen.y);  // where it was put down, a dot
    pad.stroke();
    drawn = true;
  }
  if (pen.down || event.key === " ") guess();
});
$("clear").addEventListener("click", () => { clear(); say("Cleared"); });
$("example").addEventListener("click", async () => {
  const answer = await ask("example", { number: number++ });
  if (!answer) return;
  const data = bytes(answer.pixels), image = small.createImageData(28, 28);
  data.forEach((x, i) => image.data.set([x, x, x, 255], 4 * i));
  small.putImageData(image, 0, 0);
  pad.drawImage(small.canvas, 0, 0, 280, 280);
  drawn = true;
  $("label").textContent = `a ${answer.label}, which it was not trained on`;
  guess();
});
onTheme(drawPlanes);
training(guess);
clear();
