// Talks to the server: the token, requests, and the stream of changes.

const KEY = "kubeshare-token";
const SILENCE_MS = 45_000; // a heartbeat comes every 15 s
const RETRY_MS = [500, 1000, 2000, 5000, 10_000];

/** Takes the token out of the URL, so that it is in no bookmark. */
export function takeToken() {
  const given = /^#token=([\w-]+)$/.exec(location.hash);
  if (!given) return;
  localStorage.setItem(KEY, given[1]);
  history.replaceState(null, "", "#/nodes");
}

export class RequestError extends Error {
  constructor(status, fields) {
    super(fields.error || `the server answered with status ${status}`);
    this.status = status;
    this.field = fields.field || "";
  }
}

async function request(path, signal) {
  const authorization = `Bearer ${localStorage.getItem(KEY) || ""}`;
  let response;
  try {
    response = await fetch(path, { headers: { authorization }, signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new RequestError(0, { error: "`kubeshare web` does not answer: has it ended?" });
  }
  if (!response.ok) throw new RequestError(response.status, await response.json().catch(() => ({})));
  return response;
}

export async function readJson(path, signal) {
  return (await request(path, signal)).json();
}

export async function readText(path, signal) {
  return (await request(path, signal)).text();
}

export function path(...parts) {
  return `/api/${parts.map(encodeURIComponent).join("/")}`;
}

/**
 * Reads the stream for ever, and connects again when it ends.
 * @param {(name: string, data: object) => void} onEvent
 * @param {(error: Error) => void} onLost
 */
export async function follow(onEvent, onLost) {
  for (let tries = 0; ; tries += 1) {
    try {
      await readStream((name, data) => {
        tries = 0;
        onEvent(name, data);
      });
      onLost(new RequestError(0, { error: "`kubeshare web` has ended" }));
    } catch (error) {
      onLost(error);
      if (error.status === 401) return;
    }
    await new Promise((done) => setTimeout(done, RETRY_MS[Math.min(tries, RETRY_MS.length - 1)]));
  }
}

async function readStream(onEvent) {
  const stop = new AbortController();
  let watchdog;
  const alive = () => {
    clearTimeout(watchdog);
    watchdog = setTimeout(() => stop.abort(), SILENCE_MS);
  };
  alive();
  try {
    const response = await request("/api/stream", stop.signal);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      alive();
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      for (const event of events) {
        const [, name, data] = /^event: (\w+)\ndata: (.*)$/s.exec(event);
        onEvent(name, JSON.parse(data));
      }
    }
  } finally {
    clearTimeout(watchdog);
  }
}
