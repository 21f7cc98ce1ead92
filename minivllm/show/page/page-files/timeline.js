// The timeline of one step: lanes, slices, messages, the cursor, and the ribbon of true times.
// Must not know: state; what a slice means is in layout.js.

import { count, hasProcesses, isLogical, time } from "data.js";
import { LANES, digitOf, labelsOf, orderLayout, timeLayout } from "layout.js";
import { S, T, colour, colourKey, textWidth, title } from "marks.js";
import { LEFT, RIGHT, clockNote } from "strip.js";

const LOWEST_ROW = 14;
const HIGHEST_ROW = 30;
const TOP = 19;
const RIBBON = 17;
export const view = { zoom: 1, pan: 0, clock: "order" };

let ROW = LOWEST_ROW; // px; the splitter below the timeline changes it
let TOPS = laneTops();
function laneTops() {
  let y = TOP;
  return LANES.map((lane, i) => {
    const top = y;
    y += lane.rows * ROW + (i === 1 ? 8 : i === 4 ? 2 : 3);
    return top;
  });
}
const heightNow = () => TOPS[4] + ROW + 4 + RIBBON + 2;
export const LOWEST = heightNow();
/** Rows as high as fit into a height in px; returns the height that they take. */
export function fitRows(height) {
  const rows = LANES.reduce((sum, lane) => sum + lane.rows, 0);
  ROW = Math.max(LOWEST_ROW, Math.min(HIGHEST_ROW, Math.floor(LOWEST_ROW + (height - LOWEST) / rows)));
  TOPS = laneTops();
  drawn = null;
  return heightNow();
}
const yOf = (item) => TOPS[item.lane] + item.row * ROW + (item.lane === 1 ? 4 : 0);

let current = null; // {group, clock, width, items}
function itemsOf(group, width) {
  if (!current || current.group !== group || current.clock !== view.clock || current.width !== width)
    current = { group, clock: view.clock, width, items: view.clock === "time" ? timeLayout(group, width) : orderLayout(group, width) };
  return current.items;
}

let drawn = null; // the step as it is drawn: {key, svg, slices: seq -> element, moving, …}

/** The slices are drawn once for each step and zoom; from event to event only what marks the place moves. */
export function drawTimeline(host, cursor, only, go) {
  const group = cursor.group;
  const full = host.clientWidth;
  const key = [group.index, full, view.clock, view.zoom, view.pan, only, ROW, colourKey()].join();
  if (!drawn || drawn.key !== key || drawn.svg.parentNode !== host) {
    drawn = { key, ...drawSlices(group, full, only, go) };
    host.replaceChildren(drawn.svg);
  }
  markHere(cursor, full);
}

function drawSlices(group, full, only, go) {
  const width = full - LEFT - RIGHT;
  const items = itemsOf(group, width);
  const x = (value) => LEFT + value * view.zoom - view.pan;
  const svg = S("svg", { width: full, height: heightNow(), role: "group", "aria-label": "slices of this step" });
  svg.append(S("defs", {}, waitPattern(), S("clipPath", { id: "tl-clip" }, S("rect", { x: LEFT, y: 0, width: width + 1, height: heightNow() }))));
  svg.append(...ground(full));
  const body = S("g", { "clip-path": "url(#tl-clip)" });
  const inSight = items.filter((item) => x(item.x1) >= LEFT && x(item.x0) <= LEFT + width);
  const levels = levelsOf(inSight);
  for (const item of inSight) {
    item.level = levels.get(item.e.kind);
    if (item.lane !== 1) body.append(slice(item, x, width, only));
  }
  const pairs = messages(inSight);
  const starts = pairs.map((pair) => x((pair.send || pair.receive).x0)).sort((a, b) => a - b);
  const crowded = starts.some((start, i) => i && start - starts[i - 1] < 130); // then a pill has its request's number alone
  for (const pair of pairs) body.append(...arrow(pair, x, LEFT + width, crowded));
  const line = S("g", {});
  body.append(line);
  const moving = S("g", {});
  svg.append(body, moving, ...ribbon(group, full));
  if (view.zoom > 1) svg.append(T(LEFT + 4, heightNow() - RIBBON - 6, `zoom ×${view.zoom.toFixed(1)}: A and D pan, − goes back`, { class: "small third" }));
  const seqOf = (event) => event.target.closest?.("[data-seq]")?.dataset.seq;
  const byEvent = new Map(items.map((item) => [item.e, item]));
  svg.addEventListener("click", (event) => seqOf(event) && go(Number(seqOf(event))));
  svg.addEventListener("dblclick", (event) => {
    const item = items.find(({ e }) => String(e.seq) === seqOf(event));
    if (item) zoomTo(item, width, go);
  });
  return { svg, x, width, byEvent, line, moving, slices: new Map([...body.querySelectorAll(".slice")].map((g) => [Number(g.dataset.seq), g])), here: null };
}

/** The outline of the current event, the line at its end, and its flag. */
function markHere(cursor, full) {
  const { x, width, byEvent, slices } = drawn;
  const here = byEvent.get(cursor);
  drawn.here?.classList.remove("here");
  drawn.here = slices.get(cursor.seq) || null;
  drawn.here?.classList.add("here");
  const parts = [];
  if (here) {
    const box = drawn.here?.querySelector("rect");
    if (box && here.lane !== 1) parts.push(S("rect", { x: box.getAttribute("x"), y: box.getAttribute("y"), width: box.getAttribute("width"), height: box.getAttribute("height"), rx: 2, class: "slice-here" }));
    const edge = Math.min(LEFT + width, Math.max(LEFT, x(here.x1)));
    parts.push(S("line", { x1: edge, x2: edge, y1: TOP - 2, y2: heightNow() - RIBBON - 4, class: "cursor" }));
  }
  drawn.line.replaceChildren(...parts);
  drawn.moving.replaceChildren(...flag(here, x, cursor, full));
}

function waitPattern() {
  return S(
    "pattern",
    { id: "tl-wait", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    S("rect", { width: 6, height: 6, fill: "var(--page)" }),
    S("rect", { width: 1.5, height: 6, fill: "var(--slice)" }),
  );
}

function ground(full) {
  const parts = [];
  const bottom = TOPS[4] + ROW + 2;
  parts.push(S("rect", { x: 0, y: TOPS[2] - 2, width: full, height: bottom - TOPS[2] + 2, fill: "var(--band)" }));
  LANES.forEach((lane, i) => {
    const y = TOPS[i] + ROW / 2 + 5 + (i === 1 ? 4 : 0);
    parts.push(T(16, y, lane.name, { class: "lane" }));
    if (lane.note) parts.push(T(16, y + LOWEST_ROW, lane.note, { class: "second" }));
  });
  const middle = TOPS[1] + ROW / 2 + 5;
  parts.push(S("line", { x1: 52, x2: full, y1: middle, y2: middle, class: "dotted-line" }));
  if (!hasProcesses) parts.push(T(LEFT + 4, middle - 3, "same process: no messages, B7 and B22 do not occur", { class: "third haloed" }));
  return parts;
}

function slice(item, x, width, only) {
  const { e } = item;
  const left = x(item.x0) + 0.5;
  const real = ((item.draw1 ?? item.x1) - item.x0) * view.zoom - 1;
  const w = Math.max(view.clock === "time" ? 2 : 1.5, real);
  const y = yOf(item);
  const single = e.reqs.length === 1 && item.lane < 3 && !["chat", "generate", "run_engine", "step", "schedule", "get_output", "process_outputs", "executor.execute_model", "sample_tokens", "update_from_output"].includes(e.kind);
  const waiting = e.kind === "get_output" && e.children.length === 0;
  const lost = (e.kind === "free" && e.up?.kind === "schedule") || e.kind === "unfinished" || e.error;
  const refused = e.kind === "allocate_slots" && e.refused;
  const faded = only && e.reqs.length && !e.reqs.includes(only);
  const classes = ["slice", single ? "own" : "", lost ? "lost" : "", refused ? "refused" : "", faded ? "faded" : ""].join(" ");
  const g = S("g", { class: classes, style: single ? colour(e.reqs[0]) : null, tabindex: -1, role: "button", "data-seq": e.seq, "data-reqs": item.lane < 3 ? e.reqs.join(" ") : null, "aria-label": `event ${e.seq}, ${e.kind}` });
  g.append(S("rect", { x: left, y, width: w, height: ROW - 1, rx: w > 5 ? 2 : 0, class: waiting ? "waits" : "" }));
  const seen = Math.max(left, LEFT);
  const room = Math.min(left + w, LEFT + width) - seen - 6;
  if (real >= 8) g.append(...label(item, seen + 5, y + ROW / 2 + 3.5, room, waiting));
  return g;
}

/** Of each kind the longest form of its name that fits all slices in sight: 0 the longest. */
function levelsOf(items) {
  const levels = new Map();
  for (const { e, x0, x1, draw1 } of items) {
    const labels = labelsOf(e);
    const front = digitOf(e);
    const fits = (text) => textWidth(front ? `${front} ${text}` : text, 12, 600) <= ((draw1 ?? x1) - x0) * view.zoom - 6;
    const level = Math.max(0, labels.findIndex(fits));
    levels.set(e.kind, Math.max(levels.get(e.kind) || 0, labels.some(fits) ? level : labels.length - 1));
  }
  return levels;
}

/** The longest of the event's names that fits; nothing is cut. */
function label(item, x, y, room, waiting) {
  const front = digitOf(item.e);
  for (const text of labelsOf(item.e).slice(Math.min(item.level, labelsOf(item.e).length - 1))) {
    const all = front && text ? `${front} ${text}` : front || text;
    const width = textWidth(all, 12, 500);
    if (!all || width > room) continue;
    const parts = front ? [S("tspan", { class: "digit" }, front), text ? ` ${text}` : ""] : [all];
    return [waiting ? S("rect", { x: x - 2, y: y - 10, width: width + 4, height: ROW - 3, class: "plate" }) : null, S("text", { x, y }, ...parts)].filter(Boolean);
  }
  if (front && textWidth(front, 12, 700) <= room + 4) return [S("text", { x: x - 2, y, class: "digit" }, front)];
  return [];
}

/** Sent and received sides of the messages that begin or end in this step. */
function messages(items) {
  const ends = { "core.receive": "core_client.send", "core_client.receive": "core.send" };
  const sent = new Map();
  const pairs = [];
  for (const item of items) {
    if (item.lane !== 1) continue;
    if (ends[item.e.kind]) continue;
    const pair = { send: item, receive: null };
    sent.set(`${item.e.kind} ${item.e.msg}`, pair);
    pairs.push(pair);
  }
  for (const item of items) {
    if (item.lane !== 1 || !ends[item.e.kind]) continue;
    const pair = sent.get(`${ends[item.e.kind]} ${item.e.msg}`);
    if (pair) pair.receive = item;
    else pairs.push({ send: null, receive: item });
  }
  return pairs;
}

function arrow(pair, x, edge, crowded) {
  const { send, receive } = pair;
  const e = (send || receive).e;
  const down = e.kind === "core_client.send" || e.kind === "core.receive";
  const from = send ? x(send.x0) : x(receive.x0) - 26;
  const to = receive ? x(receive.x1) : x(send.x1) + 26;
  const top = TOPS[1] - 2;
  const bottom = TOPS[2] - 1;
  const y0 = down ? top : bottom;
  const y1 = down ? bottom : top;
  const slope = Math.abs(to - from) < 1 ? 0 : 1;
  const angle = Math.atan2(y1 - y0, to - from || 0.01);
  const head = (a) => `${to - 6 * Math.cos(angle + a)},${y1 - 6 * Math.sin(angle + a)}`;
  const parts = [S("path", { d: `M${from},${y0}L${to},${y1}M${head(0.45)}L${to},${y1}L${head(-0.45)}`, class: "message", "data-slope": slope })];
  const text = crowded ? digitOf({ ...e, kind: "core_client.send" }) || e.message_type : `${digitOf(e)} ${e.message_type} ${e.num_bytes} B`.trim();
  const width = textWidth(text, 12, 600) + 18;
  const middle = Math.max(LEFT + width / 2, Math.min(edge - width / 2 - 1, (from + to) / 2));
  for (const side of [send, receive]) {
    if (!side) continue;
    const own = side.e.reqs.length === 1 && down;
    const half = width / 2;
    const left = side === send ? middle - half : middle;
    const top = TOPS[1] + 4;
    const alone = !send || !receive;
    const radius = alone
      ? `M${middle - half + 8},${top}h${width - 16}a8,8 0 0 1 0,16h${16 - width}a8,8 0 0 1 0,-16`
      : side === send
        ? `M${left + 8},${top}h${half - 8}v16h${8 - half}a8,8 0 0 1 0,-16`
        : `M${left},${top}h${half - 8}a8,8 0 0 1 0,16h${8 - half}z`;
    parts.push(
      S("g", { class: `slice pill${own ? " own" : ""}`, style: own ? colour(side.e.reqs[0]) : null, role: "button", tabindex: -1, "data-seq": side.e.seq, "data-reqs": side.e.reqs.join(" "), "aria-label": `event ${side.e.seq}, ${side.e.kind}` }, S("path", { d: radius })),
    );
  }
  const own = e.reqs.length === 1 && down;
  parts.push(
    S("rect", { x: middle - width / 2, y: TOPS[1] + 4, width, height: 16, rx: 8, class: `pill-edge${own ? " own" : ""}`, style: own ? colour(e.reqs[0]) : null, "pointer-events": "none" }),
    T(middle, TOPS[1] + 16.5, text, { class: `pill-text${own ? " own" : ""}`, style: own ? colour(e.reqs[0]) : null, "text-anchor": "middle" }),
  );
  return parts;
}

function flag(here, x, cursor, full) {
  const text = `event ${count(cursor.seq)}`;
  const width = textWidth(text, 12, 700) + 14;
  const at = here ? x(here.x1) : LEFT;
  const left = Math.max(LEFT, Math.min(full - RIGHT - width, at - width / 2));
  const note = view.clock === "time" ? "in true time" : clockNote();
  const noteWidth = textWidth(note, 12, 400);
  const right = left + width + 12 < full - RIGHT - noteWidth;
  return [
    T(right ? full - RIGHT : LEFT, 14, note, { class: "third", "text-anchor": right ? "end" : "start" }),
    S("rect", { x: left, y: 1, width, height: 16, rx: 2, fill: "var(--ink)" }),
    T(left + width / 2, 13, text, { class: "flag", "text-anchor": "middle" }),
  ];
}

/** Where the step's time went, linear. */
function ribbon(group, full) {
  const y = heightNow() - RIBBON;
  const width = full - LEFT - RIGHT;
  const parts = [T(16, y + 12, "true time", { class: "second" })];
  if (isLogical) {
    parts.push(S("line", { x1: LEFT, x2: LEFT + width, y1: y + 8, y2: y + 8, class: "dotted-line" }), T(LEFT + 6, y + 12, "no times recorded", { class: "third haloed" }));
    return parts;
  }
  const step = group.events.find((e) => e.kind === "step");
  const base = step || { t0: group.t0, t1: group.t1 };
  const span = Math.max(1, base.t1 - base.t0);
  parts.push(S("rect", { x: LEFT, y, width, height: RIBBON - 3, class: "ribbon" }));
  const shown = "schedule update_states prepare_inputs build_attention_metadata model_forward compute_logits sample_tokens update_from_output".split(" ");
  const NAMES = { model_forward: "forward", compute_logits: "logits", sample_tokens: "sample", update_from_output: "update" };
  for (const e of group.events) {
    if (!shown.includes(e.kind)) continue;
    const left = LEFT + ((e.t0 - base.t0) / span) * width;
    const w = ((e.t1 - e.t0) / span) * width;
    const big = e.kind === "model_forward";
    parts.push(S("rect", { x: left, y, width: Math.max(1, w), height: RIBBON - 3, class: big ? "ribbon-main" : "ribbon-part" }, title(`${e.kind} ${time(e.t1 - e.t0)}`)));
    const text = `${NAMES[e.kind] || e.kind} ${time(e.t1 - e.t0)}${big ? ` of ${time(span)}` : ""}`;
    if (textWidth(text, 12, 600) + 8 < w) parts.push(T(left + 6, y + 11.5, text, { class: big ? "ribbon-main-text" : "ribbon-text" }));
  }
  return parts;
}

export function zoomBy(factor, width) {
  const zoom = Math.max(1, Math.min(64, view.zoom * factor));
  const middle = (view.pan + width / 2) / view.zoom;
  view.zoom = zoom;
  view.pan = Math.max(0, Math.min(middle * zoom - width / 2, width * (zoom - 1)));
}
export function panBy(part, width) {
  view.pan = Math.max(0, Math.min(view.pan + part * width, width * (view.zoom - 1)));
}
function zoomTo(item, width, go) {
  view.zoom = Math.max(1, Math.min(64, (width * 0.8) / Math.max(1, item.x1 - item.x0)));
  view.pan = Math.max(0, Math.min(item.x0 * view.zoom - width * 0.1, width * (view.zoom - 1)));
  go(item.e.seq);
}
