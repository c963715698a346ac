// Builds elements. Text is only ever set as text, never as HTML.

/**
 * @param {string} tag name of the element
 * @param {Object<string, unknown>} attributes `class`, `href`, …; a function is an event handler,
 *   `false`, null and undefined are left out
 * @param {...(Node|string|number|null|undefined|false|Array)} children
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, String(value));
  }
  append(made, children);
  return made;
}

export function append(parent, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) parent.append(child);
  }
}

/** Replaces the children of an element. */
export function fill(parent, ...children) {
  parent.replaceChildren();
  append(parent, children);
}

/**
 * As `fill`, but what is there and wanted again stays, and with it the focus, what is selected and
 * how far it is scrolled. For what is drawn anew from time to time and has no event handlers.
 */
export function refresh(parent, ...children) {
  const wanted = element("div");
  append(wanted, children);
  match(parent, wanted);
}

function match(parent, wanted) {
  const there = [...parent.childNodes];
  const children = [...wanted.childNodes];
  children.forEach((child, at) => {
    const present = there[at];
    if (!present) parent.append(child);
    else if (sameTag(present, child)) match(present, child);
    else if (!present.isEqualNode(child)) present.replaceWith(child);
  });
  there.slice(children.length).forEach((child) => child.remove());
}

function sameTag(one, other) {
  return one instanceof Element && one.nodeName === other.nodeName
    && one.attributes.length === other.attributes.length
    && [...one.attributes].every(({ name, value }) => other.getAttribute(name) === value);
}

/** A list of terms and their descriptions; those without a description are left out. */
export function facts(entries) {
  const shown = entries.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return element("dl", {}, shown.map(([term, value]) =>
    element("div", {}, element("dt", {}, term), element("dd", {}, value))));
}

/** A table of a few rows, which scrolls by itself where the screen is narrow. */
export function table(caption, columns, rows) {
  return element("div", { class: "scrolls", tabindex: 0, role: "region", "aria-label": caption },
    element("table", {},
      element("caption", {}, caption),
      element("thead", {}, element("tr", {}, columns.map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, rows.map((cells) => element("tr", {}, cells.map((cell) => element("td", {}, cell)))))));
}
