// Formats amounts as `kubeshare` prints them.

const MICROS = 1_000_000;
const UNITS = [["Gi", 2 ** 30], ["Mi", 2 ** 20], ["Ki", 2 ** 10]];

/** Millionths of a GPU as a decimal: 500000 is 0.5. */
export function share(micros) {
  return String(Math.round((micros / MICROS) * MICROS) / MICROS);
}

/** Bytes as a Quantity. */
export function memory(bytes) {
  for (const [suffix, size] of UNITS) {
    if (bytes >= size) return `${Number((bytes / size).toFixed(2))}${suffix}`;
  }
  return String(bytes);
}

/** How long ago a time was, in one unit. */
export function age(time, now = Date.now()) {
  const at = Date.parse(time);
  if (Number.isNaN(at)) return "";
  const seconds = Math.max(0, Math.round((now - at) / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

/** What a pod used, null if that is not known. */
export function use(used) {
  return used && `${used.share} on average, ${age(used.at)} ago`;
}

/** `1 share`, `2 shares`. */
export function count(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

/** Names in order, "2" before "10". */
export const byName = new Intl.Collator("en", { numeric: true }).compare;
