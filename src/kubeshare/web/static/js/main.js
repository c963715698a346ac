// Shows the view that the part of the URL after # names, and keeps it up to date.

import { signedIn, signOut, takeToken } from "./connection.js";
import { element, fill } from "./dom.js";
import { state } from "./state.js";
import { namespacesForm, signInView } from "./sign_in.js";
import { eventsView } from "./views/events.js";
import { nodeView } from "./views/node.js";
import { nodesView } from "./views/nodes.js";
import { podView } from "./views/pod.js";
import { podsView } from "./views/pods.js";
import { quotasView } from "./views/quotas.js";
import { whatIfView } from "./views/what_if.js";

const AGES_MS = 30_000; // how often ages are shown anew

const main = document.getElementById("main");
let view = null;
let signing = false; // whether a token is asked for

function route() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  if (name === "nodes" && rest.length === 1) return nodeView(rest[0]);
  if (name === "pods" && rest.length === 3) return podView(...rest);
  if (name === "pods" || name === "waiting") return podsView(name);
  if (name === "quotas") return quotasView();
  if (name === "events") return eventsView();
  if (name === "what-if") return whatIfView();
  return nodesView();
}

function show() {
  if (location.hash === "#main" || signing) return; // the former is the skip link
  view?.close?.();
  view = route();
  fill(main, notice(), view.main);
  main.dataset.view = location.hash;
  document.title = `${view.title} · KubeShare`;
  const section = location.hash.split("/")[1] || "nodes";
  for (const link of document.querySelectorAll("nav a")) {
    const current = link.getAttribute("href") === `#/${section}`;
    if (current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  scrollTo(0, 0);
  view.update(null);
}

/** What the user does not see, and why. */
function notice() {
  const { namespaces, refused, viewer } = state.facts;
  if (!namespaces && refused.length === 0) return null;
  return element("div", { class: "notice" },
    namespaces && `You see namespace ${namespaces.join(", ")}. `,
    refused.length > 0 && `With your rights, not shown: ${refused.join(", ")}.`,
    viewer && namespaces && namespacesForm(namespaces));
}

function showStatus() {
  const status = document.getElementById("connection");
  const { stale, cluster, viewer } = state.facts;
  const words = state.problem
    || (stale.length > 0 && `Outdated: no news of ${stale.join(", ")}`)
    || (state.loaded ? ["Live", cluster, viewer].filter(Boolean).join(" · ") : "Connecting…");
  if (status.textContent !== words) status.textContent = words;
  if (!state.loaded && state.problem && !signing) fill(main, element("p", { class: "problem" }, state.problem));
  status.className = state.problem || stale.length > 0 ? "problem" : "live";
}

function showCount() {
  const place = document.getElementById("waiting-count");
  const waiting = state.rows("pods").filter((row) => row.state === "waiting").length;
  place.textContent = String(waiting);
  place.hidden = waiting === 0;
}

takeToken();
state.addEventListener("status", showStatus);
state.addEventListener("change", ({ detail }) => {
  showCount();
  document.getElementById("sign-out").hidden = !signedIn();
  if (!state.loaded || signing) return;
  if (!view) show();
  else view.update(detail);
});
addEventListener("hashchange", () => {
  takeToken();
  if (!state.loaded) return;
  show();
  main.focus({ preventScroll: true });
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
state.addEventListener("sign-in", ({ detail }) => {
  if (signing) return;
  signing = true;
  view?.close?.();
  view = null;
  fill(main, signInView(signedIn() ? detail : ""));
  document.title = "Sign in · KubeShare";
  main.querySelector("input").focus();
});
document.getElementById("sign-out").addEventListener("click", signOut);
setInterval(() => view?.update(null), AGES_MS);
state.start();
