// One node: its GPUs, their shares, and how they are linked.

import { path, readJson, readText } from "../connection.js";
import { element, facts, fill, refresh, table } from "../dom.js";
import { count, memory, share, use } from "../format.js";
import { badge, gpuState, models, podLink } from "../rows.js";
import { sparkline } from "../sparkline.js";
import { state } from "../state.js";

const COLUMNS = ["Pod", "Request", "Limit", "Memory", "Labels", "Use"];

export function nodeView(name) {
  const body = element("div", {}, element("p", { class: "quiet" }, "Reading…"));
  const tree = element("div", {});
  const main = [element("h1", {}, name), body, tree];
  let drawn = "";

  async function update(changed) {
    if (changed && !changed.has(`nodes/${name}`)) return;
    try {
      const found = await readJson(path("nodes", name));
      refresh(body, page(found));
      const layout = JSON.stringify(found.gpus.map((gpu) => [gpu.uuid, gpu.row.state === "unhealthy"]));
      if (found.drawn && layout !== drawn) {
        drawn = layout;
        fill(tree, await topology(name));
      }
    } catch (error) {
      refresh(body, element("p", { class: "problem" }, error.message));
    }
  }
  return { title: name, main, update };
}

function page(found) {
  return [
    facts([
      ["State", badge(found.row.state)],
      ["GPUs", models(found.row)],
      ["Mode", found.mode === "owned" ? "owned by KubeShare" : found.mode && "shared with Kubernetes"],
      ["Driver", found.driver],
    ]),
    found.gpus.filter(isBusy).map(gpu),
    unused(found.gpus.filter((each) => !isBusy(each))),
  ];
}

const isBusy = ({ row, shares, others }) => shares.length > 0 || others.count > 0 || Boolean(row.message);

function unused(gpus) {
  if (gpus.length === 0) return null;
  return element("section", { class: "card" }, element("h2", {}, "GPUs without shares"),
    table("GPUs without shares", ["GPU", "State", "Model", "Memory", "vGPU", "UUID"], gpus.map((each) => [
      each.row.label, badge(each.row.state, gpuState(each.row)), each.model,
      memory(each.row.memoryTotalBytes || 0), each.gpuid || "–", each.uuid || "–"])));
}

function gpu(found) {
  const { row, others } = found;
  const requested = row.requestMicros || 0;
  const total = row.memoryTotalBytes || 0;
  return element("section", { class: "card" },
    element("h2", {}, row.label, " ", badge(row.state, gpuState(row))),
    element("p", { class: "quiet ids" }, [found.model, found.gpuid !== row.label && found.gpuid && `vGPU ${found.gpuid}`, found.uuid]
      .filter(Boolean).join(" · ")),
    row.message && element("p", { class: "problem" }, row.message),
    meter(found),
    element("p", {}, `${share(requested)} of its time requested, ${memory(row.memoryBytes || 0)}`,
      total > 0 && ` of ${memory(total)}`, " of memory given"),
    found.shares.length > 0 && table(`Shares of ${row.label}`, COLUMNS, found.shares.map(shareCells)),
    others.count > 0 && element("p", {},
      `${count(others.count, "share")} of other namespaces: ${share(others.requestMicros)} of its time, `,
      `${memory(others.memoryBytes)} of memory`));
}

function shareCells(found) {
  const named = [["affinity", found.affinity], ["anti-affinity", found.antiAffinity], ["exclusion", found.exclusion]];
  const labels = named.filter(([, value]) => value).map(([name, value]) => `${name} ${value}`);
  if (found.latencySensitive) labels.push("latency-sensitive");
  // A holder does not say which kind asked for it; the rows of pods do.
  const kind = state.tables.pods.has(`SharePod/${found.namespace}/${found.name}`) ? "SharePod" : "Pod";
  return [
    [podLink(kind, found.namespace, found.name), found.share && ` (${found.share})`],
    share(found.requestMicros),
    share(found.limitMicros),
    memory(found.memoryBytes),
    labels.join(", ") || "–",
    [use(found.used) || (found.started ? "not known yet" : "not started"), found.used && sparkline(found.used.spans)],
  ];
}

/** A bar with a part for each share. The table below says the same in words. */
function meter(found) {
  const parts = found.shares.map((each) => [each.requestMicros, each.name]);
  if (found.others.count > 0) parts.push([found.others.requestMicros, "other namespaces"]);
  return element("div", { class: "meter", "aria-hidden": "true" }, parts.map(([micros, title]) => {
    const part = element("span", { title: `${title}: ${share(micros)}` });
    part.style.width = `${micros / 10_000}%`;
    return part;
  }));
}

/** The drawing of `kubeshare topo -o svg`, as a part of this page so that its colours follow. */
async function topology(name) {
  const text = await readText(path("nodes", name, "topology.svg"));
  const read = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  const drawing = document.importNode(read, true);
  drawing.setAttribute("role", "img");
  drawing.setAttribute("aria-label", `The access-cost tree of the GPUs of ${name}`);
  return element("section", { class: "card" }, element("h2", {}, "How its GPUs are linked"),
    element("div", { class: "scrolls", tabindex: 0, role: "region", "aria-label": "Topology" }, drawing));
}
