// Loads the page again, once, when one of its files could not be loaded: browsers give up what they
// load when a network of the machine changes. No module, so that it needs no other file.

const AGAIN_MS = 1000;

addEventListener("error", ({ target }) => {
  if (target.tagName !== "SCRIPT" && target.rel !== "stylesheet") return;
  const once = performance.getEntriesByType("navigation")[0].type !== "reload";
  const words = `A file of this page could not be loaded: ${once ? "trying again…" : "reload the page"}`;
  if (once) setTimeout(() => location.reload(), AGAIN_MS);
  const tell = () => {
    const status = document.getElementById("connection");
    status.className = "problem";
    status.textContent = words;
  };
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", tell);
  else tell();
}, true);
