// The page: one cursor, and everything that follows it.
// Owns: cursor, followed request, tab, theme; keys, buttons, the address.

import { bySeq, count, data, events, groups, header, isLogical, nameOf, placeOf, requestIds, roles, time } from "data.js";
import { closer, drawEvent, openPayload } from "event.js";
import { sayEvent, watchLinks } from "link.js";
import { H, S, chip, colourAround, colourKey, hatches } from "marks.js";
import { makeSplitters, togglePresenter } from "splitters.js";
import { ownersOfAll, stateAt } from "state.js";
import { drawStrip, makeStrip, placeStrip } from "strip.js";
import { LOWEST, drawTimeline, fitRows, panBy, view, zoomBy } from "timeline.js";
import { describeBlock, drawBlocks, textIn } from "blocks.js";
import { drawSchedule } from "schedule.js";
import { drawBatch } from "batch.js";
import { drawAttention } from "attention.js";
import { drawText } from "text.js";
import { drawWhy } from "why.js";

const $ = (id) => document.getElementById(id);
let links;
const numbers = new WeakMap();
const numberOf = (object) => numbers.get(object) ?? numbers.set(object, ++numberOf.last).get(object);
numberOf.last = 0;
const ownKind = (e) => (/^(kernel|attention|do_kv)/.test(e.kind) ? e.seq : "");
// name, words, how it is drawn, and what it depends on beside the step and the followed request
const TABS = [
  ["blocks", "Blocks", drawBlocks, ({ e, before, after }) => [before.count, after.count, ["schedule", "allocate_slots", "free"].includes(e.kind) ? e.seq : "", e.reqs]],
  ["schedule", "Schedule", drawSchedule, ({ after }) => [after.running, "/", after.waiting]],
  ["batch", "Batch", drawBatch, ({ group, after }) => (group.batch ? group.batch.query_start_loc.map((_, r) => after.tables.get(group.plan?.running?.[r])?.length) : [])],
  ["attention", "Attention", drawAttention, ({ e, after }) => [ownKind(e), numberOf(after.rows)]],
  ["text", "Text", drawText, ({ after }) => [after.count]],
  ["why", "Why", drawWhy, ({ hides }) => [hides]],
];
const TAB_OF = {
  schedule: "schedule", "scheduler.add_request": "schedule", step: "schedule", finish_requests: "schedule", preprocess_add_request: "schedule", update_from_output: "schedule",
  get_computed_blocks: "blocks", allocate_slots: "blocks", cache_blocks: "blocks", free: "blocks", forget_uncomputed_blocks: "blocks", get_cached_block: "blocks", touch: "blocks", get_new_blocks: "blocks", cache_full_blocks: "blocks", free_blocks: "blocks", reset_prefix_cache: "blocks",
  update_states: "batch", prepare_inputs: "batch", get_slot_mappings: "batch", build_attention_metadata: "batch", model_forward: "batch", do_kv_cache_update: "attention", attention: "attention", "kernel.launch": "attention", "kernel.program": "attention", compute_logits: "batch", "executor.execute_model": "batch", "worker.execute_model": "batch",
  sample_tokens: "text", "sampler.forward": "text", detokenize: "text", process_outputs: "text", run_engine: "text", render_cmpl: "text", render_chat: "text", abort_requests: "text",
};
const tabOf = (e) => (e.kind === "allocate_slots" && e.refused ? "why" : TAB_OF[e.kind] || (e.reqs.length ? "schedule" : null));

const page = {
  cursor: events[0],
  followed: requestIds[0] || null,
  only: null, // a request whose events alone are walked
  tab: "schedule",
  follows: true, // the tab follows the event
  hides: false, // answers, until Enter
  shown: false,
  playing: null,
  speed: 2, // events a second
};

// ------------------------------------------------------------------ moving

export function go(seq, push = true) {
  const e = bySeq(seq);
  if (!e) return;
  if (e.group !== page.cursor.group) Object.assign(view, { zoom: 1, pan: 0 });
  page.cursor = e;
  page.shown = false;
  if (e.reqs.length === 1) page.followed = e.reqs[0];
  else if (e.reqs.length && !e.reqs.includes(page.followed) && !page.only) page.followed = e.reqs[0];
  if (page.follows) page.tab = tabOf(e) || page.tab;
  draw();
  keepPlace(push);
}
const isWalked = (e) => !page.only || e.reqs.includes(page.only);
function walk(direction, wanted = isWalked, push = false) {
  for (let place = placeOf.get(page.cursor.seq) + direction; events[place]; place += direction)
    if (wanted(events[place])) {
      go(events[place].seq, push);
      return true;
    }
  return false;
}
function toStep(index, push = true) {
  const group = groups[Math.max(0, Math.min(groups.length - 1, index))];
  go((group.plan || group.events[0]).seq, push);
}
function tree(up) {
  if (up && page.cursor.up) go(page.cursor.up.seq);
  if (!up && page.cursor.children.length) go(page.cursor.children[0].seq);
}
function play(on) {
  clearInterval(page.playing);
  page.playing = on ? setInterval(() => walk(1) || play(false), 1000 / page.speed) : null;
  drawFooter();
}
function follow(id) {
  if (page.followed === id) page.only = page.only === id ? null : id;
  else {
    page.followed = id;
    if (page.only) page.only = id;
  }
  draw();
  keepPlace(false);
}

let keeping = null;
/** Walking writes the place only when it rests: browsers limit how often a page may. */
function keepPlace(push) {
  clearTimeout(keeping);
  if (push && !page.playing) writePlace(true);
  else keeping = setTimeout(() => writePlace(false), 200);
}
function writePlace(push) {
  const hash = `#e=${page.cursor.seq}&r=${encodeURIComponent(page.followed ? nameOf(page.followed) : "")}&t=${page.tab}&c=${view.clock}&f=${page.follows ? 1 : 0}`;
  if (hash === location.hash) return;
  try {
    history[push ? "pushState" : "replaceState"](null, "", hash);
  } catch {
    location.replace(hash); // a browser that limits how often a page may do this
  }
}
function readPlace() {
  const place = new URLSearchParams(location.hash.slice(1) || data.place);
  const e = place.has("e") ? bySeq(Number(place.get("e"))) : null;
  page.cursor = e || page.cursor;
  const id = requestIds.find((request) => nameOf(request) === place.get("r"));
  if (place.get("c") === "time" && !isLogical) view.clock = "time";
  if (place.has("f")) page.follows = place.get("f") !== "0";
  page.followed = id || page.cursor.reqs[0] || page.followed;
  page.tab = TABS.some(([name]) => name === place.get("t")) ? place.get("t") : tabOf(page.cursor) || page.tab;
}

// ------------------------------------------------------------------ drawing

let slider;
let waiting = null;
function draw() {
  if (printing) return;
  waiting ??= requestAnimationFrame(drawNow);
}
function drawNow() {
  cancelAnimationFrame(waiting);
  waiting = null;
  const e = page.cursor;
  if (colourAround(page.followed)) drawStrip(slider);
  placeStrip(slider, e.group);
  drawTimeline($("timeline"), e, page.only, go);
  drawEvent($("event"), e, page.followed, page.hides && !page.shown, () => openPayload($("payload"), e));
  drawPanel(e);
  drawHeader();
  drawTabs();
  drawFooter();
  document.body.dataset.seq = e.seq; // for tests, and for whoever inspects the page
}

let bodyWidth = 0; // px
let sizes = 0; // how often the window, a splitter or the type changed its size
let panelKey = null;
let panelListeners = new AbortController();
/** The panel, unless it would look as it does. */
function drawPanel(e) {
  const [name, , panel, depends] = TABS.find(([tab]) => tab === page.tab);
  const context = contextOf(e);
  const key = JSON.stringify([name, e.group.index, page.followed, sizes, colourKey(), depends(context)]);
  if (key === panelKey) return;
  panelKey = key;
  panelListeners.abort();
  panelListeners = new AbortController();
  $("panel").replaceChildren();
  $("panel").dataset.tab = name;
  panel($("panel"), { ...context, signal: panelListeners.signal });
}
function resized() {
  sizes += 1;
  bodyWidth = document.body.offsetWidth;
  drawStrip(slider);
  draw();
}

const contextOf = (e) => ({ e, group: e.group, followed: page.followed, before: stateAt(e, true), after: stateAt(e), go, hides: page.hides && !page.shown });

/** What the card says of blocks, requests and events. */
function says() {
  const e = page.cursor;
  const after = stateAt(e);
  return {
    block: (block) => {
      const look = { e, after, held: ownersOfAll(after) };
      return `${describeBlock(block, look)} ${textIn(block, look)}`.trim();
    },
    request: (id) => sayRequest(id, after),
    event: sayEvent,
  };
}
function sayRequest(id, state) {
  const r = state.requests.get(id);
  const words = `Request ${nameOf(id)}: ${statusWord(id)[1]}`;
  if (!r || r.status === "NEW") return words;
  const blocks = state.tables.get(id) || [];
  return `${words}; ${count(r.num_computed_tokens)} of ${count(r.num_tokens)} tokens computed, ${count(r.num_prompt_tokens)} of them its prompt; ${blocks.length ? `blocks ${blocks.slice(0, 12).join(" ")}${blocks.length > 12 ? ` and ${blocks.length - 12} more` : ""}` : "no block"}.`;
}

let printing = null; // the theme that was chosen before, while a print is under way
/** On paper: light, the current event, and all panels one after another. */
function printAll() {
  printing = { theme: document.documentElement.dataset.theme };
  document.documentElement.dataset.theme = "light";
  document.body.classList.add("printing"); // as wide as a browser can shrink to a sheet
  drawStrip(slider);
  placeStrip(slider, page.cursor.group);
  drawTimeline($("timeline"), page.cursor, page.only, go);
  const context = { ...contextOf(page.cursor), signal: panelListeners.signal };
  panelKey = null;
  $("panel").replaceChildren();
  for (const [name, words, panel] of TABS) {
    const section = H("section", { class: "printed", "data-tab": name });
    $("panel").append(H("h2", {}, words), section);
    panel(section, context);
  }
}

function printed() {
  if (printing?.theme) document.documentElement.dataset.theme = printing.theme;
  else delete document.documentElement.dataset.theme;
  document.body.classList.remove("printing");
  printing = null;
  drawStrip(slider);
  draw();
}

function statusWord(id) {
  const state = stateAt(page.cursor);
  const r = state.requests.get(id);
  const role = roles.get(id)?.get(page.cursor.group.index);
  if (!r || r.status === "NEW") return ["○", "not there yet"];
  if (r.status.startsWith("FINISHED")) return ["■", "finished"];
  if (r.status === "PREEMPTED") return ["✕", "preempted"];
  if (r.status === "WAITING") return ["‖", "waiting"];
  return ["▸", role && (role.kind === "prefill" || role.kind === "decode") ? role.kind : "running"];
}

const last = {}; // what header, tabs and footer were drawn from
/** Draw a part of the page again if what it shows has changed. */
function renew(part, key, build) {
  const now = JSON.stringify([key, sizes]);
  if (last[part] === now) return;
  last[part] = now;
  build();
}

function chipOf([id, glyph, word]) {
  const isFollowed = id === page.followed;
  return H("button", { class: `request${isFollowed ? " followed" : ""}`, "aria-pressed": isFollowed, "aria-label": `request ${nameOf(id)}: ${word}. Click: follow it; again: walk its events only`, onclick: () => follow(id) }, chip(id), H("span", { class: word === "preempted" ? "loss" : "" }, isFollowed ? `${glyph} ${word}${page.only === id ? " · only" : ""}` : glyph));
}

function drawHeader() {
  const many = requestIds.length > 10;
  const room = Math.max(1, Math.floor((bodyWidth - 850) / (requestIds.length > 100 ? 70 : many ? 58 : 46)) - (requestIds.length > 100 ? 2 : many ? 1 : 0));
  const first = Math.max(0, Math.min(requestIds.indexOf(page.followed) - (room >> 1), requestIds.length - room));
  const shown = requestIds.slice(first, first + room).map((id) => [id, ...statusWord(id)]);
  renew("requests", [shown, page.followed, page.only, colourKey()], () => $("requests").replaceChildren(...shown.map(chipOf), shown.length < requestIds.length ? H("span", { class: "third" }, `of ${requestIds.length}`) : ""));
  renew("clock", [view.clock], () =>
    $("clock").replaceChildren(...["order", "time"].map((clock) => H("button", { "aria-pressed": view.clock === clock, disabled: clock === "time" && isLogical, title: clock === "time" && isLogical ? "no times recorded: a logical clock" : `show events in ${clock === "time" ? "true time" : "order"} (C)`, onclick: () => setClock(clock) }, clock))),
  );
  const here = Number((header.boundaries?.[page.cursor.kind] || "B0").slice(1));
  renew("life", [here], () => moveRail(here));
}

function makeHeader() {
  $("header").replaceChildren(
    H("b", { class: "name" }, data.name),
    H("span", { class: "model" }, data.model || header.model?.architecture || ""),
    H("div", { class: "requests", id: "requests" }),
    H("div", { class: "life" }, H("span", { id: "boundary" }), makeRail()),
    H("span", { class: "detail", title: "detail of the trace: 0 ids and counters, 1 every layer, 2 values" }, `detail ${header.detail}`),
    H("div", { class: "switch", id: "clock", role: "group", "aria-label": "clock" }),
    H("button", { class: "icon", title: "theme (T)", "aria-label": "theme", onclick: theme }, "◐"),
    H("button", { class: "icon", title: "larger type, for a projector (E)", "aria-label": "larger type", onclick: presenter }, "A⁺"),
    H("button", { class: "icon", title: "keys (?)", "aria-label": "keys", onclick: showKeys }, "?"),
  );
}

const DEPTHS = [0, 0, 0, 0, 0, 0, 1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 4, 4, 3, 3, 2, 1, 0, 0, 0, 0, 0];
const railX = (b) => 6 + (b - 1) * 8.2;
const railY = (b) => 9 + DEPTHS[b - 1] * 5.6;
const railPoints = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => `${railX(from + i)},${railY(from + i)}`).join(" ");
/** B1 to B27 as a walk down through the parts and back up; a click goes to the next event there. */
function makeRail() {
  const svg = S("svg", { width: 226, height: 40, class: "rail", role: "img", id: "rail" });
  svg.append(S("rect", { x: railX(10) - 4, y: 2, width: railX(25) - railX(10) + 8, height: 36, rx: 3, fill: "var(--band)" }), S("text", { x: (railX(10) + railX(25)) / 2, y: 13, class: "third", "text-anchor": "middle" }, "each step"));
  svg.append(S("polyline", { points: railPoints(1, 27), class: "rail-line" }), S("polyline", { class: "rail-line passed" }));
  for (let b = 1; b <= 27; b++)
    svg.append(S("circle", { cx: railX(b), cy: railY(b) }), S("rect", { x: railX(b) - 4, y: 0, width: 8, height: 40, fill: "transparent", "data-say": `B${b}: ${kindsAt(b)}`, onclick: () => toBoundary(b) }));
  return svg;
}
function moveRail(here) {
  $("boundary").replaceChildren(...(here ? [H("b", {}, `B${here}`), " of 27"] : [H("span", { class: "third" }, "no number")]));
  $("rail").setAttribute("aria-label", here ? `boundary B${here} of 27` : "no boundary");
  $("rail").querySelector(".passed").setAttribute("points", here ? railPoints(1, here) : "");
  $("rail").querySelectorAll("circle").forEach((dot, i) => {
    dot.setAttribute("r", i + 1 === here ? 5 : 2);
    dot.setAttribute("class", i + 1 <= here ? "rail-dot passed-dot" : "rail-dot");
  });
}
const kindsAt = (b) => Object.entries(data.kinds).filter(([, kind]) => kind.boundary === `B${b}`).map(([kind]) => kind).join(", ") || "does not occur in this trace";
function toBoundary(b) {
  const wanted = (e) => header.boundaries?.[e.kind] === `B${b}` && (!page.followed || e.reqs.includes(page.followed));
  if (walk(1, wanted, true)) return;
  const first = events.find(wanted);
  if (first) go(first.seq);
}

function drawTabs() {
  renew("tabs", [page.tab, page.follows], () => {
    $("tabs").replaceChildren(
      ...TABS.map(([name, words], i) => H("button", { role: "tab", id: `tab-${name}`, "aria-selected": page.tab === name, onclick: () => setTab(name) }, H("kbd", {}, i + 1), ` ${words}`)),
      H("button", { class: "follows", role: "checkbox", "aria-checked": page.follows, onclick: setFollows }, page.follows ? "☑ " : "☐ ", H("span", {}, "tab follows the event "), H("kbd", {}, "F")),
    );
    $("panel").setAttribute("aria-labelledby", `tab-${page.tab}`);
  });
}
function setTab(name) {
  page.tab = name;
  page.follows = false;
  draw();
  keepPlace(false);
}
function setFollows() {
  page.follows = !page.follows;
  if (page.follows) page.tab = tabOf(page.cursor) || page.tab;
  draw();
  keepPlace(false);
}
function setClock(clock) {
  if (isLogical) return;
  Object.assign(view, { clock, zoom: 1, pan: 0 });
  draw();
  keepPlace(false);
}
function theme() {
  const dark = isDark();
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("minivllm-theme", document.documentElement.dataset.theme);
  } catch {
    // the page works without a memory
  }
  drawStrip(slider);
  draw();
}
function presenter() {
  togglePresenter();
  resized();
}
const isDark = () => (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

function makeFooter() {
  const button = (glyph, words, act, main = false) => H("button", { class: main ? "play" : "", "aria-label": words, title: words, onclick: act }, glyph);
  const key = (keys, words) => H("span", { class: "hint" }, keys.map((k) => H("kbd", {}, k)), ` ${words}`);
  $("footer").replaceChildren(
    button("|◂", "first event", () => go(events[0].seq)),
    button("◂", "event before", () => walk(-1)),
    button("▶", "play", () => play(!page.playing), true),
    button("▸", "next event", () => walk(1)),
    button("▸|", "last event", () => go(events[events.length - 1].seq)),
    H("span", { class: "place" }, "event ", H("b", { id: "place-event" }), ` of ${count(events.length)}`),
    H("span", { class: "place" }, "step ", H("b", { id: "place-step" }), ` of ${groups[groups.length - 1].step}`),
    H("span", { class: "place" }, H("b", { id: "place-time" })),
    H("span", { class: "hints" }, key(["←", "→"], "event"), key(["[", "]"], "step"), key(["R"], "next of this request"), key(["space"], "play"), key(["?"], "all keys")),
  );
}
function drawFooter() {
  const e = page.cursor;
  const playing = $("footer").querySelector(".play");
  playing.textContent = page.playing ? "❚❚" : "▶";
  playing.setAttribute("aria-label", page.playing ? "pause" : "play");
  playing.title = page.playing ? "pause" : "play";
  $("place-event").textContent = count(placeOf.get(e.seq) + 1);
  $("place-step").textContent = e.group.step;
  $("place-time").textContent = isLogical ? `tick ${count(e.t1)}` : `+${time(e.t1)}`;
}

// ------------------------------------------------------------------ keys

const sameKind = (e) => e.kind === page.cursor.kind && isWalked(e);
const sameRequest = (e) => page.followed && e.reqs.includes(page.followed);
const width = () => $("timeline").clientWidth - 120;
const KEYS = [
  // key, words, action; with Shift: "S-"
  ["ArrowRight", "next event", () => walk(1)],
  ["ArrowLeft", "event before", () => walk(-1)],
  ["S-ArrowRight", "next event of the same kind", () => walk(1, sameKind)],
  ["S-ArrowLeft", "event before of the same kind", () => walk(-1, sameKind)],
  ["ArrowUp", "to the event around it", () => tree(true)],
  ["ArrowDown", "to the first event inside it", () => tree(false)],
  ["]", "next step", () => toStep(page.cursor.group.index + 1, false)],
  ["[", "step before", () => toStep(page.cursor.group.index - 1, false)],
  ["r", "next event of the followed request", () => walk(1, sameRequest)],
  ["S-r", "event before of the followed request", () => walk(-1, sameRequest)],
  ["x", "walk only the events of the followed request, or all", () => page.followed && follow(page.followed)],
  ["f", "the tab follows the event, on and off", setFollows],
  ["c", "clock: event order, true time", () => setClock(view.clock === "order" ? "time" : "order")],
  ["t", "theme: light, dark", theme],
  ["p", "payload: all fields of the event", () => openPayload($("payload"), page.cursor)],
  ["h", "hide answers, to predict them first; Enter shows", () => { page.hides = !page.hides; draw(); }],
  ["Enter", "show what is hidden; on a block or a request: keep its card", () => { if (!links.pin()) { page.shown = true; draw(); } }],
  ["Escape", "let the card go", () => links.unpin()],
  ["e", "larger type, for a projector, on and off", presenter],
  ["+", "zoom in", () => { zoomBy(1.5, width()); draw(); }],
  ["-", "zoom out", () => { zoomBy(1 / 1.5, width()); draw(); }],
  ["a", "pan left", () => { panBy(-0.25, width()); draw(); }],
  ["d", "pan right", () => { panBy(0.25, width()); draw(); }],
  [" ", "play, pause", () => play(!page.playing)],
  [".", "faster", () => { page.speed = Math.min(32, page.speed * 2); if (page.playing) play(true); }],
  [",", "slower", () => { page.speed = Math.max(0.5, page.speed / 2); if (page.playing) play(true); }],
  ["/", "find an event by kind or number", find],
  ["Home", "first event", () => go(events[0].seq)],
  ["End", "last event", () => go(events[events.length - 1].seq)],
  ["?", "this list", showKeys],
];
const SHOWN = { ArrowRight: "→", ArrowLeft: "←", ArrowUp: "↑", ArrowDown: "↓", " ": "space" };
const keyName = (key) => key === "Escape" ? "Esc" :  (key.startsWith("S-") ? `Shift ${SHOWN[key.slice(2)] || key.slice(2).toUpperCase()}` : SHOWN[key] || (key.length === 1 ? key.toUpperCase() : key));

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input")) return;
  if (document.querySelector("dialog[open]")) {
    if (event.key === "p" || event.key === "?") document.querySelector("dialog[open]").close();
    return;
  }
  if (event.code.startsWith("Digit")) {
    const n = Number(event.code.slice(5));
    if (event.shiftKey && requestIds[n] && event.key !== "/") {
      page.followed = requestIds[n];
      event.preventDefault();
      draw();
      keepPlace(false);
      return;
    }
    if (!event.shiftKey && TABS[n - 1]) return setTab(TABS[n - 1][0]);
  }
  if ((event.key === " " || event.key === "Enter") && event.target.closest?.("button, a, [role=button]")) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const shifted = event.shiftKey && KEYS.find(([name]) => name === `S-${key}`);
  const found = shifted || KEYS.find(([name]) => name === key);
  if (!found) return;
  event.preventDefault();
  found[2]();
}

function showKeys() {
  const rows = [...KEYS.map(([key, words]) => [keyName(key), words]), ["1–6", "tab"], ["Shift 0–9", "follow that request"]];
  $("keys").replaceChildren(closer($("keys")), H("h2", {}, "Keys"), H("table", { class: "keys" }, H("tbody", {}, rows.map(([key, words]) => H("tr", {}, H("th", {}, H("kbd", {}, key)), H("td", {}, words))))));
  $("keys").showModal();
}
function find() {
  const input = H("input", { type: "search", "aria-label": "find an event", placeholder: "a kind, or a number" });
  const list = H("div", { class: "found" });
  const hits = () => {
    const words = input.value.trim().toLowerCase();
    const found = !words ? [] : /^\d+$/.test(words) ? events.filter((e) => String(e.seq) === words) : events.filter((e) => e.kind.toLowerCase().includes(words) || e.reqs.some((id) => id.toLowerCase() === words));
    list.replaceChildren(...found.slice(0, 40).map((e) => H("button", { onclick: () => { $("keys").close(); go(e.seq); } }, `${e.seq} ${e.kind}, step ${e.group.step}${e.reqs.length === 1 ? `, request ${nameOf(e.reqs[0])}` : ""}`)), H("span", { class: "third" }, `${count(found.length)} found`));
  };
  input.addEventListener("input", hits);
  input.addEventListener("keydown", (event) => event.key === "Enter" && list.querySelector("button")?.click());
  $("keys").replaceChildren(H("h2", {}, "Find an event"), input, list);
  $("keys").showModal();
  input.focus();
}

// ------------------------------------------------------------------ start

function start() {
  try {
    const kept = localStorage.getItem("minivllm-theme");
    if (kept) document.documentElement.dataset.theme = kept;
  } catch {
    // the page works without a memory
  }
  if (data.only) document.body.dataset.only = data.only;
  document.body.append(hatches());
  makeHeader();
  makeFooter();
  if (data.truncated || header.processes.some((process) => process.complete === false && !isLogical && data.truncated)) {
    $("banner").hidden = false;
    $("banner").textContent = `The file ends early: event ${events[events.length - 1].seq} is the last whole one.`;
  }
  slider = makeStrip($("strip"), (index) => toStep(index, false));
  makeSplitters($("main"), { element: $("timeline"), lowest: LOWEST, fit: fitRows }, resized);
  links = watchLinks($("card"), () => page.cursor.group, says);
  bodyWidth = document.body.offsetWidth;
  readPlace();
  colourAround(page.followed);
  drawStrip(slider);
  drawNow();
  addEventListener("keydown", onKey);
  addEventListener("resize", resized);
  addEventListener("beforeprint", printAll);
  addEventListener("afterprint", printed);
  addEventListener("popstate", () => { readPlace(); draw(); });
  addEventListener("hashchange", () => { readPlace(); draw(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawStrip(slider); draw(); });
  $("timeline").addEventListener("wheel", (event) => {
    if (!event.ctrlKey && Math.abs(event.deltaX) < Math.abs(event.deltaY)) return;
    event.preventDefault();
    if (event.ctrlKey) zoomBy(event.deltaY < 0 ? 1.2 : 1 / 1.2, width());
    else panBy(event.deltaX / width(), width());
    draw();
  }, { passive: false });
  document.body.dataset.ready = "yes";
}
/** What tests ask the page: the replayed state, as plain data. */
window.minivllm = {
  events: events.length,
  seq: () => page.cursor.seq,
  /** Show an event, and a tab, at once; anew: even what would look as it does. */
  show(seq, tab, anew = false) {
    go(seq, false);
    if (tab) page.tab = tab;
    if (anew) panelKey = null;
    drawNow();
  },
  state(seq, before) {
    const s = stateAt(bySeq(seq), before);
    return {
      step: s.step,
      waiting: s.waiting,
      running: s.running,
      free: [...s.free.keys()],
      refs: Object.fromEntries(s.refs),
      hashes: Object.fromEntries(s.hashes),
      tables: Object.fromEntries(s.tables),
      cached: Object.fromEntries(s.cached),
      rows: s.rows,
      requests: Object.fromEntries(s.requests),
    };
  },
};
start();
