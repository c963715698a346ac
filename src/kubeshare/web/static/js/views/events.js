// Events of SharePods, vGPUs, nodes and quotas.

import { readJson } from "../connection.js";
import { element, refresh, table } from "../dom.js";
import { age } from "../format.js";
import { badge, podLink } from "../rows.js";

const EVERY_MS = 10_000;

export function eventsView() {
  const body = element("div", {}, element("p", { class: "quiet" }, "Reading…"));

  async function read() {
    try {
      refresh(body, eventTable((await readJson("/api/events")).events, true));
    } catch (error) {
      refresh(body, element("p", { class: "problem" }, error.message));
    }
  }
  const timer = setInterval(read, EVERY_MS);
  read();
  return {
    title: "Events", main: [element("h1", {}, "Events"), body], update: () => {}, close: () => clearInterval(timer),
  };
}

export function eventTable(events, named) {
  if (events.length === 0) return element("p", { class: "quiet" }, "No events.");
  const columns = ["Age", "Type", "Reason", ...(named ? ["Object"] : []), "Message"];
  return table("Events", columns, events.map((event) => [
    age(event.at),
    badge(event.type),
    event.reason + (event.count > 1 ? ` ×${event.count}` : ""),
    ...(named ? [subject(event)] : []),
    event.note,
  ]));
}

function subject(event) {
  if (event.kind === "SharePod") return podLink(event.kind, event.namespace, event.name);
  return `${event.kind} ${event.namespace ? `${event.namespace}/` : ""}${event.name}`;
}
