// Asks the rank again and again, and tells how old is what is known.

const EVERY = 1000;
const LONGEST_PAUSE = 10000;
const PATIENCE = 8000;
const STORED = "meshwork-token";

// The token comes behind the # of the address, which no browser sends anywhere.
function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem(STORED, given);
    history.replaceState(null, "", location.pathname);
  }
}

takeToken();

export function setToken(token) {
  sessionStorage.setItem(STORED, token);
}

export class Refused extends Error {
  constructor(status, text) {
    super(text.trim() || `status ${status}`);
    this.status = status;
  }
}

export async function ask(path) {
  const token = sessionStorage.getItem(STORED);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const signal = AbortSignal.timeout(PATIENCE);
  const response = await fetch(path, { headers, signal, cache: "no-store", redirect: "error" });
  const text = await response.text();
  if (!response.ok) throw new Refused(response.status, text);
  return text;
}

// Calls `seen` with each answer, and `failed` with each error. Nobody is asked while the page is
// hidden: gathering costs the ranks a little.
export function follow(seen, failed) {
  let pause = EVERY;
  let timer = null;
  let [asking, again] = [false, false];
  const turn = async () => {
    if (document.hidden) return;
    [asking, again] = [true, false];
    const began = performance.now();
    try {
      seen(JSON.parse(await ask("/job.json")));
      pause = EVERY;
    } catch (error) {
      pause = Math.min(2 * pause, LONGEST_PAUSE);
      if (error instanceof Refused && error.status === 401) pause = LONGEST_PAUSE;
      failed(error);
    } finally {
      asking = false;
    }
    if (again) now();
    else timer = setTimeout(turn, Math.max(0, pause - (performance.now() - began)));
  };
  // Whoever is being asked is not asked by another turn besides: it would never end.
  const now = () => {
    again = true;
    if (asking) return;
    clearTimeout(timer);
    pause = EVERY;
    timer = setTimeout(turn, 0);
  };
  document.addEventListener("visibilitychange", () => { if (!document.hidden) now(); });
  addEventListener("online", now);
  now();
  return now;
}
