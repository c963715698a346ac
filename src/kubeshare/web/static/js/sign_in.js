// Asks for a token of the cluster, and for the namespaces to show.

import { chooseNamespaces, chosenNamespaces, signIn } from "./connection.js";
import { element } from "./dom.js";

/** @param {string} problem with the token that was entered before; "" if none was */
export function signInView(problem) {
  const input = element("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false",
    required: "", "aria-describedby": "token-hint", ...(problem && { "aria-invalid": "true" }) });
  const submit = (event) => {
    event.preventDefault();
    if (input.value.trim()) signIn(input.value.trim());
  };
  return [
    element("h1", {}, "Sign in"),
    problem && element("p", { class: "problem", role: "alert" }, problem),
    element("p", {}, "The page shows what you may see. Enter a bearer token of the cluster, for example of ",
      element("code", {}, "kubectl create token"), "."),
    element("form", { submit, novalidate: "" },
      element("div", { class: "field" },
        element("label", { for: "token" }, "Token"),
        input,
        element("small", { id: "token-hint" }, "It stays in this tab, and is forgotten when you close it.")),
      element("button", {}, "Sign in")),
  ];
}

/** @param {string[]} shown namespaces, of a viewer who may not list those of the whole cluster */
export function namespacesForm(shown) {
  const input = element("input", { id: "namespaces", value: chosenNamespaces() || shown.join(" "),
    autocomplete: "off", spellcheck: "false" });
  const submit = (event) => {
    event.preventDefault();
    chooseNamespaces(input.value.trim());
  };
  return element("form", { submit, class: "namespaces", novalidate: "" },
    element("label", { for: "namespaces" }, "Namespaces "), input, element("button", {}, "Show"));
}
