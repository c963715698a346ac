// Draws what a pod used over time as a small line, and says it in words.

import { element } from "./dom.js";
import { share } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 120;
const HEIGHT = 24;
const LONGEST_MS = 6 * 3600_000; // the first span may go back to the start of the pod
const MICROS = 1_000_000;

/**
 * @param {{start: string, end: string, micros: number}[]} spans one after the other
 * @returns {Element|null} null where there are too few to see a change
 */
export function sparkline(spans) {
  if (spans.length < 2) return null;
  const { from, to } = range(spans);
  const most = Math.max(MICROS, ...spans.map((span) => span.micros));
  const x = (time) => Math.max(0, ((Date.parse(time) - from) / (to - from)) * WIDTH).toFixed(1);
  const y = (micros) => (1 + (1 - micros / most) * (HEIGHT - 2)).toFixed(1);
  const points = spans.flatMap(({ start, end, micros }) => [`${x(start)},${y(micros)}`, `${x(end)},${y(micros)}`]);
  const drawing = drawn("svg", {
    class: "sparkline", role: "img", "aria-label": `Use over time: ${spanWords(spans)}`,
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT,
  });
  drawing.append(drawn("polyline", { points: points.join(" ") }));
  return element("span", { class: "over-time" }, drawing);
}

/** `0.21 to 0.9 in 50 min, at last 0.72`. */
export function spanWords(spans) {
  const { from, to } = range(spans);
  const rounded = spans.map((span) => Math.round(span.micros / 10_000) * 10_000);
  const minutes = Math.round((to - from) / 60_000);
  const long = minutes < 120 ? `${minutes} min` : `${Math.round(minutes / 60)} h`;
  return `${share(Math.min(...rounded))} to ${share(Math.max(...rounded))} in ${long}, at last ${share(rounded.at(-1))}`;
}

function range(spans) {
  const to = Date.parse(spans.at(-1).end);
  return { from: Math.max(Date.parse(spans[0].start), to - LONGEST_MS), to };
}

function drawn(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  return made;
}
