// All ranks at once, one of them in words, and how long each has waited lately.

import { begin, cells, css, inkOn, palette, parse, shade, times } from "./canvas.js";
import { byId, bytes, count, element, NOTHING, percent, seconds, tabulate, write } from "./format.js";

const COLUMNS = 120;
const FEWEST = 30;
const LINES = 12;
const LINE = 30;
const COLUMN_NAMES = [
  ["rank", true], ["state", false], ["host", false], ["waiting", true], ["in", false],
  ["for rank", true], ["operations", true], ["GB/s", true], ["memory", true], ["lost packets", true],
];

const canvas = byId("ranks-canvas");
let job = null;
let chosen = 0;
let chosenByHand = false;
let shape = { across: 1, size: 24 };
let listeners = [];

export function onChoice(listener) {
  listeners.push(listener);
}

export function choose(rank) {
  if (!job || rank < 0 || rank >= job.world) return;
  chosen = rank;
  chosenByHand = true;
  draw();
  detail();
  for (const listener of listeners) listener(rank);
}

// What a rank is, in a word that says more than its state.
export function kindOf(rank) {
  if (rank.state === "failed" || rank.state === "no answer") return "bad";
  const culprit = job.culprit;
  return culprit && (culprit.rank === rank.rank || culprit.peer === rank.rank) ? "warn" : "";
}

// Few ranks have a line each, with words; of many the largest cells with which all fit.
function layout(width) {
  if (job.world <= LINES) return { across: 1, size: LINE };
  for (let size = 64; size > 6; size -= 1) {
    const across = Math.max(1, Math.floor(width / size));
    if (Math.ceil(job.world / across) * size <= 300) return { across, size };
  }
  return { across: Math.max(1, Math.floor(width / 6)), size: 6 };
}

function cross(context, left, top, side, colour) {
  context.strokeStyle = colour;
  context.lineWidth = Math.max(1.5, side / 12);
  context.beginPath();
  context.moveTo(left + 0.28 * side, top + 0.28 * side);
  context.lineTo(left + 0.72 * side, top + 0.72 * side);
  context.moveTo(left + 0.72 * side, top + 0.28 * side);
  context.lineTo(left + 0.28 * side, top + 0.72 * side);
  context.stroke();
}

function cell(context, rank, { left, top, side }) {
  const colours = palette();
  const kind = kindOf(rank);
  const share = rank.recent_waiting_share;
  const fill = share == null ? parse(colours.empty) : shade(colours.wait, share);
  context.fillStyle = kind === "warn" ? colours.warn : css(fill);
  context.fillRect(left, top, side, side);
  if (kind === "bad") {
    cross(context, left, top, side, colours.bad);
    context.strokeRect(left + 1, top + 1, side - 2, side - 2);
  } else if (side >= 22) {
    context.fillStyle = kind === "warn" ? colours.card : inkOn(fill);
    context.textAlign = "center";
    context.fillText(String(rank.rank), left + side / 2, top + side / 2);
  }
}

// In words what a rank is at.
function doing(rank) {
  if (rank.failure) return rank.failure;
  if (rank.state === "not asked") return "nothing tells where it is asked";
  if (rank.address == null) return "has not answered";
  const call = rank.current;
  if (!call) return "at work between operations";
  const whom = call.awaited == null ? "" : `waits ${seconds(call.seconds)} for rank ${call.awaited} in `;
  return `${whom}${call.what} at ${call.site}`;
}

function row(context, rank, { top, width }) {
  const colours = palette();
  const kind = kindOf(rank);
  const share = rank.recent_waiting_share;
  const [bar, long] = [34, Math.min(220, width / 3)];
  const middle = top + LINE / 2 - 1;
  context.textAlign = "right";
  context.fillStyle = kind ? colours[kind] : colours.text;
  context.fillText(String(rank.rank), bar - 8, middle);
  context.fillStyle = css(shade(colours.wait, 0));
  context.fillRect(bar, top + 3, long, LINE - 8);
  context.textAlign = "left";
  if (kind === "bad" && share == null) {
    cross(context, bar, top + 1, LINE - 4, colours.bad);
  } else if (share != null) {
    context.fillStyle = css(shade(colours.wait, 0.7));
    context.fillRect(bar, top + 3, share * long, LINE - 8);
    const inside = share > 0.2;
    context.fillStyle = inside ? inkOn(shade(colours.wait, 0.7)) : colours.text;
    context.fillText(percent(share), bar + (inside ? 8 : share * long + 8), middle);
  }
  context.fillStyle = kind ? colours[kind] : colours.soft;
  const culprit = job.culprit?.rank === rank.rank ? "lets the others wait; " : "";
  context.fillText(`${culprit}${doing(rank)}`, bar + long + 12, middle, width - bar - long - 12);
}

function draw() {
  shape = layout(canvas.clientWidth);
  const { across, size } = shape;
  const lines = job.world <= LINES;
  const { context, width } = begin(canvas, Math.ceil(job.world / across) * size + 2);
  const colours = palette();
  const gap = size > 12 ? 2 : 1;
  for (const rank of job.ranks) {
    const top = Math.floor(rank.rank / across) * size + 1;
    if (lines) row(context, rank, { top, width });
    else cell(context, rank, { left: (rank.rank % across) * size + 1, top, side: size - gap });
  }
  context.lineWidth = 2;
  context.strokeStyle = colours.text;
  const [left, top] = [(chosen % across) * size, Math.floor(chosen / across) * size];
  context.strokeRect(left + 1, top + 1, lines ? width - 2 : size - gap + 1, (lines ? LINE - 2 : size - gap + 1));
}

function detail() {
  const box = byId("rank-detail");
  const rank = job.ranks[chosen];
  if (!rank) return;
  if (!box.firstChild) box.append(element("h3"), element("dl"));
  const [title, list] = box.children;
  write(title, `Rank ${rank.rank}: ${rank.state}${job.culprit?.rank === rank.rank ? ", lets the others wait" : ""}`);
  const call = rank.current;
  const pairs = rank.address == null ? [["address", `not known: ${rank.state === "not asked" ? "" : "it "}${doing(rank)}`]] : [
    ["address", rank.address],
    ["process", rank.process == null ? NOTHING : String(rank.process)],
    ["waiting", `${percent(rank.recent_waiting_share)} now, ${percent(rank.waiting_share)} in all`],
    ["in", call ? `${call.what} for ${seconds(call.seconds)}` : "no operation"],
    ["called at", call ? call.site : NOTHING],
    ["waits for", call?.awaited != null ? `rank ${call.awaited}` : "nobody"],
    ["operations", `${count(rank.operations)}, ${bytes(rank.bytes)}`],
    ["speed", rank.gigabytes_per_second == null ? NOTHING : `${rank.gigabytes_per_second.toFixed(2)} GB/s`],
    ["round trip", `${seconds(rank.round_trip_seconds)} at most`],
    ["lost packets", count(rank.packets_lost)],
    ["memory", bytes(rank.resident_bytes)],
    ["joined", `${seconds(rank.age_seconds)} ago`],
  ];
  if (rank.failure) pairs.unshift(["failure", rank.failure]);
  if (list.children.length !== 2 * pairs.length) {
    list.replaceChildren(...pairs.flatMap(() => [element("dt"), element("dd")]));
  }
  pairs.forEach(([name, value], place) => {
    write(list.children[2 * place], name);
    write(list.children[2 * place + 1], value);
  });
}

function table() {
  if (!byId("ranks-table-box").open) return;
  tabulate(byId("ranks-table"), COLUMN_NAMES, job.ranks.map((rank) => ({
    kind: kindOf(rank),
    cells: [
      String(rank.rank), rank.state, rank.host ?? NOTHING, percent(rank.recent_waiting_share),
      rank.current ? `${rank.current.what} at ${rank.current.site}` : "",
      rank.current?.awaited == null ? "" : String(rank.current.awaited),
      count(rank.operations), rank.gigabytes_per_second?.toFixed(2) ?? NOTHING,
      bytes(rank.resident_bytes), count(rank.packets_lost),
    ],
  })));
}

// Shares of the last looks and their times: a column each, as bytes, with 255 for unknown.
const history = [];

function remember() {
  const column = new Uint8Array(job.world).fill(255);
  for (const rank of job.ranks) {
    if (rank.recent_waiting_share != null) column[rank.rank] = Math.round(200 * rank.recent_waiting_share);
  }
  history.push({ column, at: performance.now() });
  if (history.length > COLUMNS) history.shift();
}

function waits() {
  const height = Math.max(40, Math.min(240, 14 * job.world));
  const { context, width } = begin(byId("wait-canvas"), height + 24);
  const colours = palette();
  const columns = Math.max(FEWEST, history.length);
  const image = cells(columns, job.world);
  const first = columns - history.length;
  history.forEach(({ column }, place) => {
    for (let rank = 0; rank < job.world; rank += 1) {
      const share = column[rank];
      if (share === undefined || share === 255) continue;
      image.set(first + place, rank, shade(colours.wait, share / 200));
    }
  });
  const [left, top] = [34, 7];
  context.fillStyle = colours.empty;
  context.fillRect(left, top, width - left, height);
  image.draw(context, left, top, width - left, height);
  context.textAlign = "right";
  const y = (rank) => top + ((rank + 0.5) / job.world) * height;
  const culprit = job.culprit?.rank;
  const shown = Math.min(job.world, Math.floor(height / 14));
  context.fillStyle = colours.soft;
  for (let line = 0; line < shown; line += 1) {
    const rank = Math.floor((line * job.world) / shown);
    // Next to the number that matters there is no other.
    if (culprit == null || Math.abs(y(rank) - y(culprit)) >= 12) context.fillText(String(rank), left - 6, y(rank));
  }
  times(context, {
    first: left + (first / columns) * (width - left), width, y: top + height + 9, passed: history.at(-1).at - history[0].at,
  });
  if (culprit == null) return;
  context.textAlign = "right";
  context.fillStyle = colours.warn;
  context.fillText(`${culprit}▸`, left - 1, y(culprit));
}

canvas.addEventListener("click", (event) => {
  const { across, size } = shape;
  const column = across === 1 ? 0 : Math.min(across - 1, Math.floor(event.offsetX / size));
  choose(Math.floor(event.offsetY / size) * across + column);
});

canvas.addEventListener("keydown", (event) => {
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -shape.across, ArrowDown: shape.across };
  const ends = { Home: 0, End: job ? job.world - 1 : 0 };
  if (event.key in steps) choose(chosen + steps[event.key]);
  else if (event.key in ends) choose(ends[event.key]);
  else return;
  event.preventDefault();
});

byId("ranks-table-box").addEventListener("toggle", () => { if (job) table(); });

export function redraw() {
  if (!job) return;
  draw();
  waits();
}

export function show(next) {
  job = next;
  if (chosen >= job.world) chosen = 0;
  // Who makes the others wait is looked at first, until somebody looks at another.
  if (!chosenByHand && job.culprit) chosen = job.culprit.rank;
  remember();
  redraw();
  detail();
  table();
}
