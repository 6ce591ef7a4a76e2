// The last operations of some ranks side by side, from their flight recorders.

import { ask } from "./feed.js";
import { begin, css, palette, shade, ticks } from "./canvas.js";
import { byId, seconds, write } from "./format.js";

const RANKS = 32;
const ROW = 16;
const LEFT = 34;
// Between two questions that nobody asked for: they are most of what an open page costs a rank.
const EVERY = 1900;
const canvas = byId("timeline-canvas");
const from = byId("timeline-from");
const span = byId("timeline-span");
const hold = byId("timeline-hold");
let world = 0;
let rows = [];
let visible = false;
let asking = false;
let askedAt = -Infinity;

new IntersectionObserver(([entry]) => { visible = entry.isIntersecting; }).observe(canvas);

const first = () => Math.max(0, Math.min(Number(from.value) || 0, Math.max(0, world - 1)));

// Times in microseconds: from when until when is drawn.
function range() {
  const ends = rows.map((row) => row.now);
  const end = Math.max(...ends);
  const wanted = 1e6 * Number(span.value);
  if (wanted > 0) return [end - wanted, end];
  // As far as all remember: later than the first that each has kept, if it has forgotten any.
  const kept = rows.filter((row) => row.operations.length).map((row) => row.operations[0][0]);
  const start = kept.length ? Math.max(...kept) : end - 1e6;
  return [Math.min(start, end - 1000), end];
}

function draw() {
  const shown = Math.min(RANKS, Math.max(0, world - first()));
  const { context, width, height } = begin(canvas, Math.max(1, shown) * ROW + 20);
  const colours = palette();
  if (!rows.length) return;
  const [start, end] = range();
  const x = (time) => LEFT + ((time - start) / (end - start)) * (width - LEFT);
  context.textAlign = "right";
  for (const row of rows) {
    const top = (row.rank - first()) * ROW;
    if (top < 0 || top >= shown * ROW) continue;
    context.fillStyle = colours.soft;
    context.fillText(String(row.rank), LEFT - 6, top + ROW / 2);
    context.fillStyle = css(shade(colours.wait, 0));
    context.fillRect(LEFT, top + 1, width - LEFT, ROW - 2);
    for (const operation of row.operations) bar(context, row, operation, { top, x, width });
  }
  context.fillStyle = colours.soft;
  context.textAlign = "center";
  for (const tick of ticks((end - start) / 1e6, 6).slice(1)) {
    const place = x(end - 1e6 * tick);
    if (place < LEFT + 20) continue;
    context.fillText(`−${seconds(tick)}`, place, height - 8);
    context.fillStyle = colours.line;
    context.fillRect(place, shown * ROW, 1, 4);
    context.fillStyle = colours.soft;
  }
  const calls = new Set(rows.flatMap((row) => row.calls));
  write(
    byId("timeline-note"),
    `${seconds((end - start) / 1e6)} by each rank's own clock; bars are operations, strongest where they waited at length; `
      + `gaps are what comes before them. ${calls.size === 1 ? [...calls][0] : `${calls.size} kinds of calls`}`,
  );
}

function bar(context, row, [began, ended, , waits], { top, x, width }) {
  const colours = palette();
  const left = Math.max(LEFT, x(began));
  const right = Math.min(width, x(ended ?? row.now));
  if (right < LEFT) return;
  context.fillStyle = css(shade(colours.wait, 0.6));
  // A gap of a pixel tells one from the next.
  context.fillRect(left, top + 1, Math.max(1, right - left - 1), ROW - 2);
  let until = ended ?? row.now;
  context.fillStyle = css(shade(colours.wait, 1));
  for (const [, micros] of [...waits].reverse()) {
    const edge = Math.max(LEFT, x(until - micros));
    context.fillRect(edge, top + 3, Math.max(0, x(until) - edge), ROW - 6);
    until -= micros;
  }
}

async function refresh() {
  if (!visible || asking || !world || hold.getAttribute("aria-pressed") === "true") return;
  asking = true;
  askedAt = performance.now();
  try {
    const start = first();
    const end = Math.min(world, start + RANKS);
    const lines = await ask(`/operations.jsonl?from=${start}&to=${end}&hops=2`);
    const said = lines.split("\n").filter(Boolean).map((line) => JSON.parse(line));
    rows = said.filter((row) => row.operations).sort((one, other) => one.rank - other.rank);
    draw();
  } catch (error) {
    write(byId("timeline-note"), `no operations: ${error.message}`);
  } finally {
    asking = false;
  }
}

hold.addEventListener("click", () => {
  const held = hold.getAttribute("aria-pressed") === "true";
  hold.setAttribute("aria-pressed", String(!held));
  refresh();
});

from.addEventListener("change", () => refresh());
span.addEventListener("change", () => draw());

// A rank that was chosen elsewhere comes into view.
export function lookAt(rank) {
  const start = first();
  if (rank >= start && rank < start + RANKS) return;
  from.value = String(Math.floor(rank / RANKS) * RANKS);
  refresh();
}

export function redraw() {
  if (world) draw();
}

export function show(job) {
  world = job.world;
  from.max = String(Math.max(0, world - 1));
  if (performance.now() - askedAt >= EVERY) refresh();
}
