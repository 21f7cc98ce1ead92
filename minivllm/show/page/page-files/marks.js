// Elements, colours and the marks that mean the same in every panel.
// Must not know: events.

import { nameOf, printable, requestIndex, visible } from "data.js";

const SVG = "http://www.w3.org/2000/svg";

const SHOWN = ["title", "aria-label"]; // attributes that are read; others are keys

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || (value === false && !name.startsWith("aria-"))) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : SHOWN.includes(name) ? printable(String(value)) : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(printable(String(child))));
  }
  return element;
}
export const H = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);
export const S = (tag, attributes, ...children) => build(document.createElementNS(SVG, tag), attributes, children);

const COLOURS = 8;
const MANY = 24; // with more requests than these only eight neighbours keep their colours; the rest is grey
let coloured = { first: 0, last: requestIndex.size > MANY ? COLOURS - 1 : Infinity };
/** Keep the colours around a request; whether others are coloured now. It takes one from outside to move them. */
export function colourAround(id) {
  const i = requestIndex.get(id);
  if (i === undefined || (i >= coloured.first && i <= coloured.last)) return false;
  const first = Math.max(0, Math.min(requestIndex.size - COLOURS, i - COLOURS / 2));
  coloured = { first, last: first + COLOURS - 1 };
  return true;
}
export const colourKey = () => coloured.first;
const hueOf = (id) => {
  const i = requestIndex.get(id);
  return i === undefined || i < coloured.first || i > coloured.last ? null : i % COLOURS;
};
/** CSS variables of a request's colour. */
export function colour(id) {
  const hue = hueOf(id);
  return hue === null ? "--fill:var(--batch);--edge:var(--slice);--on-fill:var(--ink)" : `--fill:var(--f${hue});--edge:var(--e${hue})`;
}
export const fillOf = (id) => {
  const hue = hueOf(id);
  return hue === null ? "var(--batch)" : `var(--f${hue})`;
};
/** Hatches in the eight colours and in grey, once on the page; their names are idle-0 to idle-7 and idle-x. */
export const idleFill = (id) => `url(#idle-${hueOf(id) ?? "x"})`;
export const hatches = () => S("svg", { width: 0, height: 0, class: "hatches", "aria-hidden": "true" }, S("defs", {}, [...Array(COLOURS).keys(), "x"].map((hue) => S("pattern", { id: `idle-${hue}`, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, S("rect", { width: 6, height: 6, fill: "var(--page)" }), S("rect", { width: 2.6, height: 6, fill: hue === "x" ? "var(--slice)" : `var(--f${hue})` })))));
/** The request's chip: its number on its colour; white dots from the ninth on. */
export function chip(id, small = false) {
  const dotted = (requestIndex.get(id) ?? 0) >= COLOURS && hueOf(id) !== null;
  return H("span", { class: `chip${small ? " small" : ""}${dotted ? " dotted" : ""}`, style: colour(id), "data-request": id }, nameOf(id));
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
  return S("g", { style: colour(id), "data-request": id }, S("rect", { x: 0, y, width, height: 20, rx: 3, class: "mark" }), T(width / 2, y + 14.5, name, { class: "mark-text", "text-anchor": "middle" }));
}

export const title = (text) => S("title", {}, text);

export function tokenSpan(text, attributes = {}) {
  return H("bdi", attributes, visible(text));
}
export const cross = (x, y, size = 4) =>
  S("path", { d: `M${x - size},${y - size}l${2 * size},${2 * size}m0,${-2 * size}l${-2 * size},${2 * size}`, class: "cross" });
