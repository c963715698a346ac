// The quotas that limit shares of GPUs.

import { element, refresh, table } from "../dom.js";
import { byName } from "../format.js";
import { state } from "../state.js";

export function quotasView() {
  const body = element("div", {});

  function update(changed) {
    if (changed && ![...changed].some((id) => id.startsWith("quotas/"))) return;
    const rows = state.rows("quotas").sort((a, b) => byName(a.id, b.id));
    refresh(body, rows.length === 0
      ? element("p", { class: "quiet" }, "No quota limits shares of GPUs.")
      : table("Quotas", ["Namespace", "Quota", "Allows", "Held"], rows.map((row) => [
        row.namespace, `${row.kind} ${row.name}`, row.limits.join("; "), row.used || "–"])));
  }
  return { title: "Quotas", main: [element("h1", {}, "Quotas"), body], update };
}
