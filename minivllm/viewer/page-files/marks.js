// Elements, colours and the marks that mean the same in every panel.
// Must not know: events.

import { nameOf, requestIndex, visible } from "data.js";

const SVG = "http://www.w3.org/2000/svg";

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || (value === false && !name.startsWith("aria-"))) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}
export const H = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);
export const S = (tag, attributes, ...children) => build(document.createElementNS(SVG, tag), attributes, children);

const COLOURS = 8;
/** CSS variables of a request's colour. */
export function colour(id) {
  const i = requestIndex.get(id);
  return i === undefined ? "--fill:var(--batch);--edge:var(--slice)" : `--fill:var(--f${i % COLOURS});--edge:var(--e${i % COLOURS})`;
}
export const fillOf = (id) => {
  const i = requestIndex.get(id);
  return i === undefined ? "var(--batch)" : `var(--f${i % COLOURS})`;
};
export const edgeOf = (id) => {
  const i = requestIndex.get(id);
  return i === undefined ? "var(--slice)" : `var(--e${i % COLOURS})`;
};
/** The request's chip: its number on its colour; white dots from the ninth on. */
export function chip(id, small = false) {
  const dotted = (requestIndex.get(id) ?? 0) >= COLOURS;
  return H("span", { class: `chip${small ? " small" : ""}${dotted ? " dotted" : ""}`, style: colour(id) }, nameOf(id));
}

const measurer = document.createElement("canvas").getContext("2d");
const widths = new Map();
export function textWidth(text, size = 12, weight = 500) {
  const key = `${size} ${weight} ${text}`;
  if (!widths.has(key)) {
    if (widths.size > 5000) widths.clear();
    measurer.font = `${weight} ${size}px Inter, system-ui, sans-serif`;
    widths.set(key, measurer.measureText(text).width);
  }
  return widths.get(key);
}

export function T(x, y, text, attributes = {}) {
  return S("text", { x, y, ...attributes }, text);
}
/** A text of unknown script: cut by code points so that it fits, never with dots; the whole is in its title. */
export function fitted(text, width, size = 12, weight = 500) {
  if (textWidth(text, size, weight) <= width) return text;
  let letters = [...text];
  while (letters.length > 1 && textWidth(letters.join(""), size, weight) > width) letters = letters.slice(0, -1);
  return letters.join("");
}

/** The request's chip inside a drawing; names begin at x = 34. */
export function mark(id, y) {
  const name = nameOf(id);
  const width = Math.min(30, Math.max(20, textWidth(name, 12, 700) + 8));
  return S("g", { style: colour(id) }, S("rect", { x: 0, y, width, height: 20, rx: 3, class: "mark" }), T(width / 2, y + 14.5, name, { class: "mark-text", "text-anchor": "middle" }));
}

export const title = (text) => S("title", {}, text);

/** Hatches in a request's colours, one pattern for each use; ids are unique on the page. */
export function hatch(id, name, background = "var(--page)") {
  return S(
    "pattern",
    { id: name, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    S("rect", { width: 6, height: 6, fill: background }),
    S("rect", { width: 2.6, height: 6, fill: id === null ? "var(--slice)" : fillOf(id) }),
  );
}

export function tokenSpan(text, attributes = {}) {
  return H("bdi", attributes, visible(text));
}
export const cross = (x, y, size = 4) =>
  S("path", { d: `M${x - size},${y - size}l${2 * size},${2 * size}m0,${-2 * size}l${-2 * size},${2 * size}`, class: "cross" });
