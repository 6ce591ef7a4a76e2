// Links from rank to rank, by what is asked for, since the look before.

import { begin, cells, css, palette, shade } from "./canvas.js";
import { byId, bytes, count, seconds, tabulate, write } from "./format.js";

const canvas = byId("links-canvas");
const choice = byId("links-what");
// CSS pixels of a cell.
const SMALLEST = 4;
let world = 0;
let links = new Map();
let before = new Map();
let beforeAt = 0;
let chosen = [0, 0];
let shape = { size: 1, left: 34 };

// No rank of a link is beyond those that are shown, which are 1,024 at most.
const key = (from, to) => from * 1024 + to;

// What a link has carried since the look before, in a second.
function rates(job) {
  const now = performance.now();
  const passed = Math.max(0.001, (now - beforeAt) / 1000);
  const totals = new Map();
  const found = new Map();
  for (const [from, to, micros, sent, packets, lost] of job.links) {
    const place = key(from, to);
    totals.set(place, { sent, packets, lost });
    const last = before.get(place);
    const fresh = last && last.packets <= packets ? last : { sent, packets, lost };
    found.set(place, {
      from, to,
      trip: micros / 1e6,
      bytes: (sent - fresh.sent) / passed,
      packets: packets - fresh.packets,
      lost: lost - fresh.lost,
      lostInAll: lost,
    });
  }
  [before, beforeAt] = [totals, now];
  return found;
}

const MEASURES = {
  trip: (link) => link.trip,
  bytes: (link) => link.bytes,
  lost: (link) => (link.packets > 0 ? link.lost / link.packets : 0),
};

// From a number to a part of the colours: round trips differ by powers of ten, and so do bytes.
function scale(numbers) {
  if (choice.value === "lost") return (number) => (number <= 0 ? 0 : 0.25 + 0.75 * Math.min(1, number / 0.05));
  let [least, most] = [Infinity, 0];
  for (const number of numbers) {
    if (number > 0) least = Math.min(least, number);
    most = Math.max(most, number);
  }
  // Twice as long is no colour's difference: only ten times is all of them.
  const span = Math.max(Math.log(most / least), Math.log(10));
  return (number) => (number <= 0 ? 0 : Math.log(number / least) / span);
}

function draw() {
  const left = 34;
  const side = Math.min(canvas.clientWidth - left, 520, 34 * world);
  const size = side / Math.max(1, world);
  shape = { size, left };
  const { context } = begin(canvas, links.size ? side + 18 : 24);
  const colours = palette();
  if (!links.size) {
    context.fillStyle = colours.soft;
    context.fillText("No packets between ranks: they share memory, or are connected by TCP.", 0, 12);
    return;
  }
  // A cell that is too small to be seen is shown with its neighbours, by the worst of them.
  const together = Math.max(1, Math.ceil(SMALLEST / size));
  const across = Math.ceil(world / together);
  const worst = new Float64Array(across * across).fill(-1);
  const measure = MEASURES[choice.value];
  for (const link of links.values()) {
    const place = Math.floor(link.from / together) * across + Math.floor(link.to / together);
    worst[place] = Math.max(worst[place], measure(link));
  }
  const image = cells(across, across);
  const part = scale(worst);
  worst.forEach((number, place) => {
    if (number >= 0) image.set(place % across, Math.floor(place / across), shade(colours.heat, part(number)));
  });
  context.fillStyle = colours.empty;
  context.fillRect(left, 0, side, side);
  image.draw(context, left, 0, side, side);
  if (size > 8) grid(context, left, side, size);
  context.fillStyle = colours.soft;
  context.textAlign = "right";
  const shown = Math.min(world, Math.floor(side / 16));
  for (let line = 0; line < shown; line += 1) {
    const rank = Math.floor((line * world) / shown);
    context.fillText(String(rank), left - 6, (rank + 0.5) * size);
  }
  context.textAlign = "left";
  context.fillText("from the rank of the line to that of the column", left, side + 10);
  context.strokeStyle = colours.text;
  context.lineWidth = 2;
  context.strokeRect(left + chosen[1] * size, chosen[0] * size, Math.max(4, size), Math.max(4, size));
}

function grid(context, left, side, size) {
  context.strokeStyle = palette().card;
  context.lineWidth = 1;
  context.beginPath();
  for (let line = 1; line < world; line += 1) {
    context.moveTo(left + line * size, 0);
    context.lineTo(left + line * size, side);
    context.moveTo(left, line * size);
    context.lineTo(left + side, line * size);
  }
  context.stroke();
}

function detail() {
  const [from, to] = chosen;
  const link = links.get(key(from, to));
  const text = link
    ? `${from} to ${to}: ${seconds(link.trip)} for a round trip, ${bytes(link.bytes)}/s, `
      + `${count(link.lost)} of ${count(link.packets)} packets lost since the last look, ${count(link.lostInAll)} in all`
    : `${from} to ${to}: not connected`;
  write(byId("links-detail"), links.size ? text : "");
}

function table() {
  if (!byId("links-table-box").open) return;
  const measure = MEASURES[choice.value];
  const worst = [...links.values()].sort((one, other) => measure(other) - measure(one)).slice(0, 50);
  tabulate(
    byId("links-table"),
    [["from", true], ["to", true], ["round trip", true], ["lost", true], ["bytes in a second", true]],
    worst.map((link) => ({
      kind: "",
      cells: [String(link.from), String(link.to), seconds(link.trip), `${count(link.lost)} of ${count(link.packets)}`, bytes(link.bytes)],
    })),
  );
}

function pick(from, to) {
  if (from < 0 || to < 0 || from >= world || to >= world) return;
  chosen = [from, to];
  draw();
  detail();
}

canvas.addEventListener("pointermove", (event) => {
  const { size, left } = shape;
  pick(Math.floor(event.offsetY / size), Math.floor((event.offsetX - left) / size));
});

canvas.addEventListener("keydown", (event) => {
  const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  const step = steps[event.key];
  if (!step) return;
  pick(chosen[0] + step[0], chosen[1] + step[1]);
  event.preventDefault();
});

choice.addEventListener("change", () => redraw());
byId("links-table-box").addEventListener("toggle", () => table());

export function redraw() {
  draw();
  detail();
  table();
}

export function show(job) {
  world = job.world;
  links = rates(job);
  if (chosen[0] >= world || chosen[1] >= world) chosen = [0, 0];
  // The first look has a link to show.
  if (!links.has(key(...chosen)) && links.size) {
    const first = links.values().next().value;
    chosen = [first.from, first.to];
  }
  redraw();
}
