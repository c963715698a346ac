// One SharePod or pod: where it is, or why it waits and what would help.

import { path, readJson } from "../connection.js";
import { element, facts, refresh } from "../dom.js";
import { explanation } from "../explanation.js";
import { age, use } from "../format.js";
import { badge, nodeLink } from "../rows.js";
import { sparkline, spanWords } from "../sparkline.js";
import { eventTable } from "./events.js";

export function podView(kind, namespace, name) {
  const about = element("div", {}, element("p", { class: "quiet" }, "Reading…"));
  const answer = element("div", { role: "status" }, element("p", { class: "quiet" }, "Asking the scheduler's rules…"));
  const events = element("div", {});
  const card = (title, content) => element("section", { class: "card" }, element("h2", {}, title), content);
  const main = [
    element("h1", {}, `${namespace}/${name}`), about,
    card("What the scheduler would do now", answer), card("Events", events),
  ];

  async function update(changed) {
    if (changed && !changed.has(`pods/${kind}/${namespace}/${name}`)) return;
    await Promise.all([
      into(about, path("pods", kind, namespace, name), facing),
      into(answer, path("explain", kind, namespace, name), explanation),
      into(events, `/api/events?${new URLSearchParams({ namespace, name })}`, (found) => eventTable(found.events, false)),
    ]);
  }
  return { title: `${namespace}/${name}`, main, update };
}

async function into(place, url, show) {
  try {
    refresh(place, show(await readJson(url)));
  } catch (error) {
    refresh(place, element("p", { class: "problem" }, error.message));
  }
}

function over(spans) {
  const drawn = sparkline(spans);
  return drawn && element("span", {}, drawn, ` ${spanWords(spans)}`);
}

function facing({ row, used }) {
  return [
    facts([
      ["State", badge(row.state)],
      ["Kind", row.kind],
      ["Node", row.node && nodeLink(row.node)],
      [row.state === "waiting" ? "Asks for vGPU" : "GPUs", row.gpuids.join(", ")],
      ["Request", row.request + (row.count > 1 ? ` of each of ${row.count} GPUs` : "")],
      ["Limit", row.limit],
      ["Memory", row.memory],
      ["Use", use(used)],
      ["Use over time", used && over(used.spans)],
      ["Age", age(row.created)],
    ]),
    row.message && element("p", { class: row.state === "waiting" ? "problem" : "" },
      row.reason && element("strong", {}, `${row.reason}: `), row.message),
  ];
}
