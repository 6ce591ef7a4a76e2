// Puts the page together: the verdict first, then what it rests on.

import * as charts from "./charts.js";
import { follow, Refused, setToken } from "./feed.js";
import { brief, byId, bytes, clock, count, describe, element, few, middle, NOTHING, percent, seconds, tabulate, write } from "./format.js";
import * as links from "./links.js";
import * as ranks from "./ranks.js";
import * as timeline from "./timeline.js";

const OLD = 3500;
const EVENTS = 200;
let last = null;
let lastAt = 0;
let problem = null;

// Names that were given to ranks, and ranks that came and went, the latest first.
const named = [];

// How many ranks are shown.
function shown(job, all) {
  return job.members > job.world ? `the first ${count(job.world)} of ${count(job.members)}` : `${all}${count(job.world)}`;
}

// Ranks that say nothing, by their state, and what is said of one and of several.
const MISSING = [
  ["no answer", "does not answer", "do not answer"],
  ["not asked", "cannot be asked", "cannot be asked"],
];

// A kind, what is so, why, and the first of them without what changes from look to look.
function verdict(job) {
  const failed = job.ranks.filter((rank) => rank.failure);
  if (failed.length) return ["bad", "The group is over", failed[0].failure];
  if (job.culprit) {
    const [rank, ...rest] = job.culprit.text.split(": ");
    return ["warn", rank, rest.join(": ")];
  }
  for (const [state, one, several] of MISSING) {
    const missing = job.ranks.filter((rank) => rank.state === state).map((rank) => rank.rank);
    if (!missing.length) continue;
    // Or one of which nobody knows whose it is.
    const why = job.unanswered.find((said) => said.startsWith(`rank ${missing[0]}: `))
      ?? job.unanswered.find((said) => !/^rank \d/.test(said)) ?? "";
    const text = missing.length === 1 ? `Rank ${missing[0]} ${one}` : `${missing.length} ranks ${several}: ${few(missing)}`;
    return ["warn", text, why];
  }
  if (job.slowest?.now && job.slowest.seconds >= 1) {
    const { rank, seconds: time } = job.slowest;
    const name = `Rank ${rank} is waited for`;
    return ["warn", `${name} since ${seconds(time)}`, "why it is slow cannot be told for sure", name];
  }
  const more = job.slowest ? `rank ${job.slowest.rank} has let the others wait longest so far, ${seconds(job.slowest.seconds)} in all` : "";
  return ["good", job.world === 1 ? "The only rank is at work" : `${shown(job, "all ")} ranks are at work`, more];
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function showVerdict(job) {
  const [kind, text, more, name = text] = verdict(job);
  byId("verdict").dataset.kind = kind;
  write(byId("verdict-text"), capital(text));
  write(byId("verdict-more"), capital(more));
  document.title = kind === "good" ? `${count(job.members)} ranks – Meshwork` : `⚠ ${capital(name)} – Meshwork`;
  if (kind !== "good") note(kind, `${name}${more ? `: ${more}` : ""}`, name);
}

// The same name again lengthens the last event.
function note(kind, text, name) {
  const now = new Date();
  const latest = named[0];
  if (latest && latest.name === name && now - latest.until < 10000) {
    latest.until = now;
    return;
  }
  named.unshift({ kind, text, name, from: now, until: now });
  named.length = Math.min(named.length, EVENTS);
}

function showFigures(job) {
  const answering = job.ranks.filter((rank) => rank.address != null).length;
  describe(byId("figures"), [
    ["ranks that answer", `${count(answering)} of ${shown(job, "")}`],
    ["view", job.view == null ? NOTHING : String(job.view)],
    ["step", count(job.steps)],
    ["samples in a second", brief(job.samples_per_second)],
    ["loss", brief(job.loss)],
    ["time in operations", percent(middle(job.ranks.map((rank) => rank.recent_waiting_share)))],
    ["last checkpoint", job.checkpoint_age_seconds == null ? NOTHING : `${seconds(job.checkpoint_age_seconds)} ago`],
  ]);
}

function showEvents(job) {
  const now = Date.now();
  const changes = job.changes.map((change) => ({
    from: new Date(now - 1000 * change.ago_seconds),
    text: change.reason == null
      ? `${change.address} came, in view ${change.view}`
      : `${change.address ?? "a rank"} left, at the end of view ${change.view}: ${change.reason}`,
  }));
  const events = named.map((event) => {
    const lasted = (event.until - event.from) / 1000;
    return { from: event.from, text: `${event.text}${lasted >= 2 ? ` (for ${seconds(lasted)})` : ""}` };
  });
  const all = [...changes, ...events].sort((one, other) => other.from - one.from).slice(0, EVENTS);
  const list = byId("changes");
  if (!all.length) all.push({ from: null, text: "Nobody came, left or was waited for since this page was opened." });
  while (list.children.length > all.length) list.lastChild.remove();
  while (list.children.length < all.length) {
    const item = element("li");
    item.append(element("time"), element("span"));
    list.append(item);
  }
  all.forEach(({ from, text }, place) => {
    const [time, told] = list.children[place].children;
    write(time, from ? clock(from) : "");
    write(told, text);
  });
}

function showHosts(job) {
  const hosts = new Map();
  for (const rank of job.ranks) {
    if (rank.host == null) continue;
    if (!hosts.has(rank.host)) hosts.set(rank.host, []);
    hosts.get(rank.host).push(rank);
  }
  tabulate(
    byId("hosts-table"),
    [["host", false], ["ranks", false], ["time in operations", true], ["memory", true]],
    [...hosts].map(([host, own]) => ({
      kind: own.map(ranks.kindOf).find(Boolean) ?? "",
      cells: [
        host, few(own.map((rank) => rank.rank)),
        percent(middle(own.map((rank) => rank.recent_waiting_share))),
        bytes(own.reduce((sum, rank) => sum + (rank.resident_bytes ?? 0), 0)),
      ],
    })),
  );
}

function seen(job) {
  performance.mark("answered");
  [last, lastAt, problem] = [job, performance.now(), null];
  byId("token-form").hidden = true;
  byId("main").hidden = false;
  write(byId("where"), `as rank ${job.asked} sees it, asked by way of ${location.host}`);
  showVerdict(job);
  showFigures(job);
  ranks.show(job);
  charts.show(job);
  links.show(job);
  timeline.show(job);
  showEvents(job);
  showHosts(job);
  showAge();
  // Read by whoever asks how fluent the page is; only the last are kept.
  performance.clearMeasures();
  performance.measure("look", "answered");
  performance.clearMarks();
}

function failed(error) {
  problem = error;
  if (error instanceof Refused && error.status === 401) {
    byId("token-form").hidden = false;
    byId("main").hidden = last === null;
  }
  showAge();
}

function showAge() {
  const age = performance.now() - lastAt;
  const state = byId("link-state");
  const stale = byId("stale");
  const old = problem !== null || age > OLD;
  byId("main").classList.toggle("old", old);
  stale.hidden = !old;
  state.dataset.state = last === null && problem === null ? "waiting" : old ? "lost" : "live";
  if (last === null) {
    write(state, problem === null ? "connecting" : "no connection");
    stale.hidden = problem === null;
    if (problem) write(stale, `${location.host} gives no answer: ${reason()}`);
    return;
  }
  write(state, old ? `no news for ${seconds(age / 1000)}` : "live");
  if (old) {
    const since = clock(new Date(Date.now() - age));
    write(stale, `What you see is from ${since}: the rank at ${location.host} has not answered since${problem ? ` (${reason()})` : ""}. The page goes on asking.`);
  }
}

function reason() {
  if (problem instanceof Refused) return problem.message;
  return problem.name === "TimeoutError" ? "it takes too long" : "it cannot be reached; it is gone, or the network is";
}

const again = follow(seen, failed);

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(byId("token").value.trim());
  byId("token").value = "";
  again();
});

ranks.onChoice(timeline.lookAt);
setInterval(showAge, 500);

const redraw = () => {
  if (!last) return;
  for (const part of [ranks, charts, links, timeline]) part.redraw();
};
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
