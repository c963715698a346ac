// Parts of rows that several views share.

import { element } from "./dom.js";
import { share } from "./format.js";

const STATES = {
  free: "free", idle: "idle", shared: "shared", whole: "whole GPU in use", creating: "being created",
  deleting: "being released", unhealthy: "unhealthy", "partly seen": "partly seen",
};

export function link(href, text, more = {}) {
  return element("a", { href, ...more }, text);
}

export const nodeLink = (name) => link(`#/nodes/${encodeURIComponent(name)}`, name);

export function podLink(kind, namespace, name) {
  const parts = [kind, namespace, name].map(encodeURIComponent);
  return link(`#/pods/${parts.join("/")}`, `${namespace}/${name}`);
}

/** A state as a word beside its colour. */
export function badge(state, text = state) {
  return element("span", { class: `badge ${state.replace(" ", "-").toLowerCase()}` }, text);
}

export const gpuState = (gpu) => STATES[gpu.state] || gpu.state;

/** A bar for each GPU, filled up to what is requested of its time. The words beside it say the same. */
export function strip(gpus) {
  return element("span", { class: "strip", "aria-hidden": "true" }, gpus.map((gpu) => {
    const level = element("i");
    level.style.height = `${gpu.state === "whole" ? 100 : Math.min(100, (gpu.requestMicros || 0) / 10_000)}%`;
    const title = `${gpu.label}: ${gpuState(gpu)}, ${share(gpu.requestMicros || 0)} requested`;
    return element("span", { class: `gpu ${gpu.state.replace(" ", "-")}`, title }, level);
  }));
}

/** `Tesla V100 ×8`. */
export function models(row) {
  return `${row.models.join(", ") || "GPU"} ×${row.gpus.length}`;
}

export function requested(gpus) {
  return gpus.reduce((sum, gpu) => sum + (gpu.requestMicros || 0), 0);
}
