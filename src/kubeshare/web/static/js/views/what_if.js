// Where a SharePod would go that does not exist.

import { readJson } from "../connection.js";
import { element, fill } from "../dom.js";
import { explanation } from "../explanation.js";

const FIELDS = [
  ["request", "Request", "0.5", "share of a GPU that is guaranteed"],
  ["limit", "Limit", "1", "share that it may use at most"],
  ["memory", "Memory", "4Gi", "or a fraction such as 0.25"],
  ["count", "GPUs", "1", "how many, on one node"],
  ["model", "Model", "any", "of the GPU"],
  ["namespace", "Namespace", "default", "whose quotas count"],
  ["affinity", "Affinity", "none", "use the GPU with this label"],
  ["antiAffinity", "Anti-affinity", "none", "keep off GPUs with this label"],
  ["exclusion", "Exclusion", "none", "share only with this label"],
  ["latencySensitive", "Latency-sensitive", "false", "true: launches are served promptly"],
];

export function whatIfView() {
  const answer = element("div", { role: "status" });
  const form = element("form", { submit: ask, novalidate: "" },
    element("div", { class: "fields" }, FIELDS.map(([name, label, example, hint]) =>
      element("div", { class: "field" },
        element("label", { for: name }, label),
        element("input", { id: name, name, placeholder: example, autocomplete: "off", spellcheck: "false",
          "aria-describedby": `${name}-hint` }),
        element("small", { id: `${name}-hint` }, hint)))),
    element("button", {}, "Ask"));

  async function ask(event) {
    event.preventDefault();
    const given = [...new FormData(form)].filter(([, value]) => value.trim()).map(([name, value]) => [name, value.trim()]);
    for (const input of form.querySelectorAll("input")) input.removeAttribute("aria-invalid");
    fill(answer, element("p", { class: "quiet" }, "Asking…"));
    try {
      const found = await readJson(`/api/what-if?${new URLSearchParams(given)}`);
      fill(answer, explanation(found));
      mark(found.field);
    } catch (error) {
      mark(error.field);
      fill(answer, element("p", { class: "problem" }, error.field && element("strong", {}, `${error.field}: `), error.message));
    }
  }

  /** @param {string} field of the form, or of the manifest that it stands for */
  function mark(field) {
    const wrong = field && form.elements.namedItem(field.split(".").pop());
    if (!wrong) return;
    wrong.setAttribute("aria-invalid", "true");
    wrong.focus();
  }

  const words = "Where would a SharePod go now? The scheduler's own rules answer. Nothing is written.";
  return { title: "What if", main: [element("h1", {}, "What if"), element("p", {}, words), form, answer], update: () => {} };
}
