// All ranks at once, one of them in words, and how long each has waited lately.

import { begin, cells, css, inkOn, palette, shade } from "./canvas.js";
import { byId, bytes, count, element, NOTHING, percent, seconds, tabulate, write } from "./format.js";

const COLUMNS = 120;
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

// The largest cells with which all ranks fit.
function layout(width) {
  for (let size = 64; size > 6; size -= 1) {
    const across = Math.max(1, Math.floor(width / size));
    if (Math.ceil(job.world / across) * size <= 300) return { across, size };
  }
  return { across: Math.max(1, Math.floor(width / 6)), size: 6 };
}

function mark(context, rank, kind, place) {
  const { left, top, inner } = place;
  const colours = palette();
  context.lineWidth = Math.max(2, inner / 12);
  context.strokeStyle = kind === "bad" ? colours.bad : colours.warn;
  context.strokeRect(left + 1, top + 1, inner - 2, inner - 2);
  if (kind !== "bad") return;
  context.beginPath();
  context.moveTo(left + 0.25 * inner, top + 0.25 * inner);
  context.lineTo(left + 0.75 * inner, top + 0.75 * inner);
  context.moveTo(left + 0.75 * inner, top + 0.25 * inner);
  context.lineTo(left + 0.25 * inner, top + 0.75 * inner);
  context.stroke();
}

function label(context, rank, colour, place) {
  const { left, top, inner } = place;
  context.fillStyle = colour;
  context.textAlign = "center";
  const middle = left + inner / 2;
  const words = inner >= 44 && rank.recent_waiting_share != null;
  context.fillText(String(rank.rank), middle, top + inner * (words ? 0.35 : 0.5));
  if (words) context.fillText(percent(rank.recent_waiting_share), middle, top + inner * 0.68);
}

function draw() {
  shape = layout(canvas.clientWidth);
  const { across, size } = shape;
  const { context } = begin(canvas, Math.ceil(job.world / across) * size);
  const colours = palette();
  const inner = size - (size > 12 ? 2 : 1);
  for (const rank of job.ranks) {
    const place = { left: (rank.rank % across) * size, top: Math.floor(rank.rank / across) * size, inner };
    const share = rank.recent_waiting_share;
    const fill = share == null ? null : shade(colours.wait, share);
    context.fillStyle = fill ? css(fill) : colours.empty;
    context.fillRect(place.left, place.top, inner, inner);
    const kind = kindOf(rank);
    if (inner >= 22 && kind !== "bad") label(context, rank, fill ? inkOn(fill) : colours.text, place);
    if (kind) mark(context, rank, kind, place);
  }
  context.lineWidth = 2;
  context.strokeStyle = colours.text;
  context.strokeRect((chosen % across) * size, Math.floor(chosen / across) * size, inner, inner);
}

function detail() {
  const box = byId("rank-detail");
  const rank = job.ranks[chosen];
  if (!rank) return;
  if (!box.firstChild) box.append(element("h3"), element("dl"));
  const [title, list] = box.children;
  write(title, `Rank ${rank.rank}: ${rank.state}${job.culprit?.rank === rank.rank ? ", lets the others wait" : ""}`);
  const call = rank.current;
  const pairs = rank.address == null ? [["address", "not known: it has not answered"]] : [
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

// Shares of the last looks: a column each, as bytes, with 255 for unknown.
const history = [];

function remember() {
  const column = new Uint8Array(job.world).fill(255);
  for (const rank of job.ranks) {
    if (rank.recent_waiting_share != null) column[rank.rank] = Math.round(200 * rank.recent_waiting_share);
  }
  history.push(column);
  if (history.length > COLUMNS) history.shift();
}

function waits() {
  const height = Math.max(40, Math.min(240, 14 * job.world));
  const { context, width } = begin(byId("wait-canvas"), height + 16);
  const colours = palette();
  const image = cells(COLUMNS, job.world);
  const first = COLUMNS - history.length;
  history.forEach((column, place) => {
    for (let rank = 0; rank < job.world; rank += 1) {
      const share = column[rank];
      if (share === undefined || share === 255) continue;
      image.set(first + place, rank, shade(colours.wait, share / 200));
    }
  });
  const left = 34;
  context.fillStyle = colours.empty;
  context.fillRect(left, 0, width - left, height);
  image.draw(context, left, 0, width - left, height);
  context.fillStyle = colours.soft;
  context.textAlign = "right";
  const shown = Math.min(job.world, Math.floor(height / 14));
  for (let line = 0; line < shown; line += 1) {
    const rank = Math.floor((line * job.world) / shown);
    context.fillText(String(rank), left - 6, ((rank + 0.5) / job.world) * height);
  }
  context.textAlign = "left";
  context.fillText("2 min ago", left, height + 9);
  context.textAlign = "right";
  context.fillText("now", width, height + 9);
}

canvas.addEventListener("click", (event) => {
  const { across, size } = shape;
  const column = Math.min(across - 1, Math.floor(event.offsetX / size));
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
  write(byId("ranks-legend"), "pale works, dark waits; × does not answer, framed lets the others wait");
  redraw();
  detail();
  table();
}
