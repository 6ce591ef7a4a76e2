// Throughput and loss of the last looks.

import { begin, palette, ticks, times } from "./canvas.js";
import { brief, byId, bytes, middle, NOTHING, write } from "./format.js";

const KEPT = 600;
const FEWEST = 60;
const HEIGHT = 150;
const points = [];
let before = null;

// Bytes of operations in a second, of the middle rank of those that have answered this time and the
// last, where the program counts no samples.
function moved(job, at) {
  const last = before;
  before = { job, at };
  if (!last || last.job.view !== job.view || at <= last.at) return null;
  const more = middle(job.ranks.map((rank, place) => {
    const old = last.job.ranks[place];
    return rank.address != null && rank.address === old?.address ? rank.bytes - old.bytes : null;
  }));
  return more == null ? null : Math.max(0, (1000 * more) / (at - last.at));
}

function line(canvas, values, format) {
  const { context, width, height } = begin(canvas, HEIGHT);
  const colours = palette();
  const known = values.filter((value) => value != null && Number.isFinite(value));
  const [left, bottom] = [56, height - 18];
  const least = Math.min(0, ...known);
  const most = Math.min(Math.max(...known, least + 1e-9) * 1.05, Number.MAX_VALUE);
  const span = Math.max(FEWEST, values.length);
  const y = (value) => bottom - ((value - least) / (most - least)) * (bottom - 8);
  const x = (place) => width - 4 - ((values.length - 1 - place) / (span - 1)) * (width - 4 - left);
  context.lineWidth = 1;
  context.textAlign = "right";
  for (const tick of known.length ? ticks(most, 3) : [0]) {
    context.strokeStyle = colours.line;
    context.beginPath();
    context.moveTo(left, Math.round(y(tick)) + 0.5);
    context.lineTo(width, Math.round(y(tick)) + 0.5);
    context.stroke();
    context.fillStyle = colours.soft;
    if (known.length) context.fillText(format(tick), left - 6, y(tick));
  }
  times(context, { first: x(0), width, y: height - 7, passed: points.at(-1).at - points[0].at });
  context.strokeStyle = colours.accent;
  context.lineWidth = 2;
  context.beginPath();
  let drawing = false;
  values.forEach((value, place) => {
    if (value == null || !Number.isFinite(value)) {
      drawing = false;
      return;
    }
    if (drawing) context.lineTo(x(place), y(value));
    else context.moveTo(x(place), y(value));
    drawing = true;
  });
  context.stroke();
  // A line of one point is not seen.
  const last = values.at(-1);
  if (last != null && Number.isFinite(last)) {
    context.fillStyle = colours.accent;
    context.beginPath();
    context.arc(width - 4, y(last), 3, 0, 7);
    context.fill();
  }
}

export function redraw() {
  const last = points.at(-1);
  if (!last) return;
  const counted = points.some((point) => point.samples != null);
  const speed = counted ? last.samples : last.moved;
  const told = counted
    ? `${brief(speed)} samples in a second`
    : `${speed == null ? NOTHING : bytes(speed)} of operations in a second, of a rank`;
  write(byId("speed-now"), told);
  const speeds = points.map((point) => (counted ? point.samples : point.moved));
  line(byId("speed-canvas"), speeds, counted ? brief : bytes);
  const losses = points.map((point) => point.loss);
  const reported = losses.some((loss) => loss != null);
  write(byId("loss-now"), reported ? brief(last.loss) : "the program reports none");
  line(byId("loss-canvas"), losses, brief);
}

export function show(job) {
  const at = performance.now();
  points.push({ at, samples: job.samples_per_second, moved: moved(job, at), loss: job.loss });
  if (points.length > KEPT) points.shift();
  redraw();
}
