// Talks to the server: the token, requests, and the stream of changes.

const KEY = "kubeshare-token";
const NAMESPACES = "kubeshare-namespaces";
const SILENCE_MS = 45_000; // a heartbeat comes every 15 s
const RETRY_MS = [500, 1000, 2000, 5000, 10_000];

/** Takes the token out of the URL, so that it is in no bookmark. */
export function takeToken() {
  const given = /^#token=([\w-]+)$/.exec(location.hash);
  if (!given) return;
  localStorage.setItem(KEY, given[1]);
  history.replaceState(null, "", "#/nodes");
}

/** Uses a token of the cluster in this tab, until it is closed. */
export function signIn(token) {
  sessionStorage.setItem(KEY, token);
  location.reload();
}

export function signOut() {
  sessionStorage.removeItem(KEY);
  location.reload();
}

/** Whether the token was entered here, and not added by a proxy. */
export const signedIn = () => Boolean(sessionStorage.getItem(KEY));

/** Shows these namespaces in this tab; all that the viewer may see if there are none. */
export function chooseNamespaces(names) {
  sessionStorage.setItem(NAMESPACES, names);
  location.reload();
}

export const chosenNamespaces = () => sessionStorage.getItem(NAMESPACES) || "";

function requestHeaders() {
  const token = sessionStorage.getItem(KEY) || localStorage.getItem(KEY);
  const names = chosenNamespaces();
  return { ...(token && { authorization: `Bearer ${token}` }), ...(names && { [NAMESPACES]: names }) };
}

export class RequestError extends Error {
  constructor(status, fields) {
    super(fields.error || `the server answered with status ${status}`);
    this.status = status;
    this.field = fields.field || "";
    this.signIn = fields.signIn === true;
  }
}

async function request(path, signal) {
  let response;
  try {
    response = await fetch(path, { headers: requestHeaders(), signal, cache: "no-store" });
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
