// Hover and focus: the same block, request or event lights up in every part of the page, and a card gives its numbers.
// Owns: what is lit, and the card.
// Must not know: how a part is drawn. It goes by data-block, data-request, data-seq, and data-say or aria-label.

import { bySeq, isLogical, nameOf, time } from "data.js";
import { H } from "marks.js";

const LINKED = "[data-block], [data-request], .slice[data-seq], [data-say], .card"; // the body has the cursor's data-seq
const BLOCKS_OF = ["block_ids", "new_block_ids", "hit_block_ids", "evicted_block_ids"];

/** The blocks that an event hands over, as strings. */
export function blocksOf(e) {
  const found = new Set(BLOCKS_OF.flatMap((field) => (Array.isArray(e[field]) ? e[field] : [])));
  if (typeof e.block_id === "number") found.add(e.block_id);
  return new Set([...found].map(String));
}

let lit = [];
let pinned = null; // the element whose card stays

function unlight() {
  for (const element of lit) element.classList.remove("linked");
  lit = [];
}
function light(selector) {
  for (const element of document.querySelectorAll(selector))
    if (!element.classList.contains("linked")) {
      element.classList.add("linked");
      lit.push(element);
    }
}

function lightFrom(element, group) {
  unlight();
  const { request, seq } = element.dataset;
  const block = element.dataset.block ?? (seq === undefined ? element.closest("[data-block]")?.dataset.block : undefined);
  if (block !== undefined) {
    light(`[data-block="${block}"]`);
    for (const e of group.events) if (blocksOf(e).has(block)) light(`.slice[data-seq="${e.seq}"]`);
  } else if (seq !== undefined) {
    const e = bySeq(Number(seq));
    for (const one of e ? blocksOf(e) : []) light(`#panel [data-block="${one}"]`);
    for (const id of e && e.reqs.length === 1 ? e.reqs : []) light(`.chip[data-request="${CSS.escape(id)}"]`);
  } else if (request !== undefined) {
    const id = CSS.escape(request);
    light(`[data-request="${id}"]:not(.heat-cell, .change), .slice[data-reqs~="${id}"]`);
    if (element.matches(".heat-cell")) light(`.heat-cell[data-request="${id}"][data-step="${element.dataset.step}"]`);
  }
}

/** A drawing's own title would show beside the card: it becomes what the card says. */
function takeTitle(element) {
  const title = [...element.children].find((child) => child.localName === "title");
  if (!title) return;
  element.dataset.say = title.textContent;
  title.remove();
}

function textOf(element, says) {
  takeTitle(element);
  const { say, block, request, seq } = element.dataset;
  if (say) return say;
  if (block !== undefined && says.block) return says.block(Number(block));
  if (seq !== undefined) return says.event(bySeq(Number(seq)));
  if (request !== undefined) return says.request(request);
  return element.getAttribute("aria-label") || "";
}

/** What the card says of an event. */
export function sayEvent(e) {
  if (!e) return "";
  const who = e.reqs.length === 1 ? `, request ${nameOf(e.reqs[0])}` : e.reqs.length > 1 ? `, ${e.reqs.length} requests` : "";
  const size = e.num_bytes === undefined || e.num_bytes === null ? "" : `, ${e.message_type} of ${e.num_bytes} bytes`;
  return `${e.kind}, event ${e.seq}${who}${size}${isLogical ? "" : `, ${time(e.t1 - e.t0)}`}`;
}

/** Follow pointer and focus. now: () => the step's group; says: {block, request, event}, each to a text. */
export function watchLinks(card, now, says) {
  const show = (element, x, y) => {
    const text = textOf(element, says());
    lightFrom(element, now());
    card.hidden = !text;
    card.replaceChildren(H("bdi", {}, text));
    const box = card.getBoundingClientRect();
    const scale = box.width / (card.offsetWidth || 1);
    const left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 4));
    const top = y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18;
    card.style.left = `${left / scale}px`;
    card.style.top = `${Math.max(4, top) / scale}px`;
  };
  const hide = () => {
    if (pinned) return;
    unlight();
    card.hidden = true;
  };
  document.addEventListener("pointerover", (event) => {
    if (pinned) return;
    const element = event.target.closest?.(LINKED);
    if (element && !element.closest("dialog")) show(element, event.clientX, event.clientY);
    else hide();
  });
  document.addEventListener("pointerdown", () => {
    pinned = null;
    hide();
  });
  document.documentElement.addEventListener("pointerleave", hide);
  return {
    /** Pin the card of the element that has the focus; whether there is one. */
    pin() {
      const element = document.activeElement?.closest?.(LINKED);
      if (!element) return false;
      const box = element.getBoundingClientRect();
      pinned = null;
      show(element, box.left, box.bottom - 12);
      pinned = element;
      card.classList.add("pinned");
      return true;
    },
    unpin() {
      const was = pinned !== null;
      pinned = null;
      card.classList.remove("pinned");
      hide();
      return was;
    },
  };
}
