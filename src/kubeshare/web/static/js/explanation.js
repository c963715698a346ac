// Shows what the scheduler would answer, as `kubeshare explain` does.

import { element, table } from "./dom.js";

const NAMED = 6; // places with the same reason that are named
const OUTCOMES = { bound: "It fits now", pending: "It has to wait", rejected: "It can never be placed" };

export function explanation(found) {
  const held = found.held.length > 0;
  const gpus = found.gpus.map((gpu) => `${found.node}/${gpu}`).join(", ");
  const head = found.decision === "bound"
    ? `${held ? "Placed now, it would be on" : "It fits now, on"} ${gpus}${found.created ? " (a new vGPU)" : ""}.`
    : `${OUTCOMES[found.decision]}${found.field ? ` (${found.field})` : ""}.`;
  const reasons = Object.entries(found.reasons);
  return element("div", { class: `explanation ${found.decision}` },
    held && element("p", {}, `It has ${found.held.join(", ")}.`),
    element("p", { class: "outcome" }, head),
    found.help && element("p", { class: "help" }, element("strong", {}, "What would help: "), `${found.help}.`),
    found.preemption && element("p", {}, `Preemption: ${found.preemption}.`),
    found.priorityNote && element("p", {}, found.priorityNote),
    found.policyNote && element("p", { class: "quiet" }, found.policyNote),
    found.gang && gang(found.gang),
    reasons.length > 0 && table("Why not elsewhere", ["Why not elsewhere", "GPU or node"],
      byReason(reasons).map(([why, places]) => [why, named(places)])),
    found.moreReasons > 0 && element("p", { class: "quiet" },
      `and ${found.moreReasons} more: kubeshare explain prints them all`));
}

/** The places of each reason, in the order in which the scheduler names them. */
function byReason(reasons) {
  const found = new Map();
  for (const [place, why] of reasons) found.set(why, [...(found.get(why) || []), place]);
  return [...found];
}

function named(places) {
  const shown = places.slice(0, NAMED).map((place, at) => [at > 0 && ", ", element("code", {}, place)]);
  return [shown, places.length > NAMED && ` and ${places.length - NAMED} more`];
}

function gang(found) {
  const members = Object.entries(found.members);
  return element("div", {},
    element("p", {}, `Gang ${found.name}: needs ${found.needs} members, ${found.there} are there, ${found.placed} are placed.`),
    table("Members of the gang", ["Member", "State"], members));
}
