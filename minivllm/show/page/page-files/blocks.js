// KV blocks: block tables above, the pool below, the free queue before and after.
// Must not know: the scheduler's reasons.

import { blockSize, count, groups, nameOf, params, piece, plural, pool, requestIds, roles } from "data.js";
import { H, S, T, colour, colourKey, fillOf, idleFill, mark } from "marks.js";
import { ownersOfAll, stateAt } from "state.js";

const LABELS = 150; // width in front of the tables
const CELL = 60;
const ROW = 27;

export function drawBlocks(host, { e, group, followed, before, after, signal }) {
  if (!pool) {
    host.append(H("p", { class: "empty" }, "The trace does not say how large the pool is: it ended before the core had one."));
    return;
  }
  const width = Math.max(600, host.clientWidth - 32);
  const held = ownersOfAll(after);
  const heldBefore = ownersOfAll(before);
  const look = { e, group, followed, before, after, held, heldBefore, tags: tagsOf(e, before, after, held, heldBefore), width };
  const tables = drawTables(look);
  const cards = pool <= 42;
  const gap = cards || tables.arrows.length ? 40 : 20;
  const top = tables.height + gap;
  const info = H("p", { class: "block-info", "aria-live": "polite" });
  const show = (block) => info.replaceChildren(H("bdi", {}, describeBlock(block, look)));
  const body = cards ? drawCards(look, top, show) : drawGrid(look, top, show);
  const svg = S("svg", { width, height: body.bottom, role: "group", "aria-label": "block tables and pool" });
  svg.append(defs(), ...tables.parts, ...arrows(tables, body, look), T(0, top - (cards ? 26 : 6), "pool", { class: "strong" }), T(width, top - (cards ? 26 : 6), `${count(pool - 1 - after.free.size)} of ${plural(pool - 1, "block")} in use`, { class: "third", "text-anchor": "end" }), ...body.parts);
  host.append(svg, queues(look), legend(), info);
  for (const kind of ["pointerover", "focusin"])
    host.addEventListener(kind, (event) => event.target.closest?.("[data-block]") && show(Number(event.target.closest("[data-block]").dataset.block)), { signal });
  const own = (after.tables.get(followed) || [])[0];
  show([...look.tags.keys()][0] ?? own ?? 1);
}

/** What this very event did to each block: hit, new, evicted, freed, shared. */
function tagsOf(e, before, after, held, heldBefore) {
  const tags = new Map();
  const forced = (e.kind === "free" && e.up?.kind === "schedule") || (e.kind === "schedule" && (e.preemptions || []).length);
  for (let block = 1; block < pool; block++) {
    const was = before.refs.get(block) || 0;
    const is = after.refs.get(block) || 0;
    const lost = before.hashes.has(block) && before.hashes.get(block) !== after.hashes.get(block);
    if (lost) tags.set(block, ["evicted", true]);
    else if (!was && is) tags.set(block, [before.hashes.has(block) ? "hit" : "new", false]);
    else if (was && !is) tags.set(block, ["freed", Boolean(forced)]);
    else if (is > was) tags.set(block, ["shared", false]);
    else if ((held.get(block) || []).length !== (heldBefore.get(block) || []).length) tags.set(block, [(held.get(block) || []).length > (heldBefore.get(block) || []).length ? "taken" : "let go", false]);
  }
  return tags;
}

function defs() {
  return S("defs", {}, S("marker", { id: "head", viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, S("path", { d: "M0,0L8,4L0,8z", class: "arrow-head" })), S("marker", { id: "head-lost", viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, S("path", { d: "M0,0L8,4L0,8z", class: "arrow-head lost" })));
}

function word(id, look) {
  const r = look.after.requests.get(id);
  if (!r || r.status === "NEW") return "not there yet";
  if (r.status.startsWith("FINISHED")) return "finished";
  if (r.status === "PREEMPTED" || (look.before.tables.has(id) && !look.after.tables.has(id))) return "preempted";
  if (look.after.tables.has(id) && r.status !== "RUNNING") return "admitted";
  return r.status === "RUNNING" ? "runs" : "waits";
}

function drawTables(look) {
  const { before, after, followed, width } = look;
  const alive = requestIds.filter((id) => after.tables.has(id) || before.tables.has(id) || (after.requests.has(id) && after.requests.get(id).status !== "NEW"));
  const distance = (id) => Math.abs(requestIds.indexOf(id) - requestIds.indexOf(followed));
  const useful = alive.filter((id) => id !== followed && (after.tables.has(id) || before.tables.has(id)));
  const others = alive.filter((id) => id !== followed && !useful.includes(id)).sort((a, b) => distance(a) - distance(b));
  const room = 4;
  const chosen = new Set([...useful, ...others].slice(0, room - 1));
  const rows = [...alive.filter((id) => chosen.has(id)), ...(followed ? [followed] : [])];
  const parts = [T(0, 14, "block tables", { class: "strong" })];
  const columns = Math.floor((width - LABELS) / CELL);
  const longest = Math.max(1, ...rows.map((id) => (after.tables.get(id) || before.tables.get(id) || []).length));
  const own = (after.tables.get(followed) || before.tables.get(followed) || []).length;
  const first = Math.max(0, Math.min(longest, Math.max(own, 1) + 2) - columns);
  for (let c = 0; c < Math.min(columns, longest - first); c++)
    parts.push(T(LABELS + c * CELL + 28, 14, `${(first + c) * blockSize}–${(first + c + 1) * blockSize - 1}`, { class: "third", "text-anchor": "middle" }));
  const anchors = [];
  rows.forEach((id, i) => {
    const y = 22 + i * ROW + (id === followed && i ? 5 : 0);
    parts.push(mark(id, y + 2), T(34, y + 17, word(id, look), { class: id === followed ? "strong" : "" }));
    const now = after.tables.get(id);
    const table = now || before.tables.get(id) || [];
    table.slice(first, first + columns).forEach((block, c) => {
      const x = LABELS + c * CELL;
      const merged = i && rows[i - 1] !== undefined && (after.tables.get(rows[i - 1]) || [])[first + c] === block && now;
      const shared = now ? (look.held.get(block) || []).length : 0;
      const tag = look.tags.get(block);
      const isOld = (before.tables.get(id) || [])[first + c] === block;
      const classes = now ? `mark${id === followed && !isOld ? " here" : ""}` : "gone";
      parts.push(S("g", { class: "table-cell", "data-request": id, "data-block": block, style: colour(id) }, S("rect", { x, y, width: CELL - 3, height: ROW - 4, rx: 3, class: classes }), merged ? S("rect", { x: x + 1, y: y - 5 - (id === followed ? 5 : 0), width: CELL - 5, height: 8 + (id === followed ? 5 : 0), fill: fillOf(id), opacity: 0.75 }) : null, T(x + (CELL - 3) / 2, y + 16, shared > 1 ? `${block} ×${shared}` : `${block}`, { class: now ? "mark-text" : "gone-text", "text-anchor": "middle" })));
      if (!now) parts.push(S("line", { x1: x + 18, x2: x + CELL - 21, y1: y + 12, y2: y + 12, class: "strike" }));
      if (id === followed) anchors.push({ x: x + (CELL - 3) / 2, y: y + ROW - 4, block, lost: !now });
    });
    const need = look.e.kind === "allocate_slots" && look.e.refused && look.e.reqs[0] === id ? look.e.blocks_needed : (look.e.up?.preemptions || look.e.preemptions || []).find((p) => p.for_req_id === id && look.e.kind === "free")?.blocks_needed;
    if (!table.length && !need) parts.push(T(LABELS, y + 17, "no blocks", { class: "third" }));
    if (need && table.length - first < columns) {
      const x = LABELS + (table.length - first) * CELL;
      parts.push(S("rect", { x, y, width: CELL + 14, height: ROW - 4, rx: 3, class: "needs" }), T(x + (CELL + 14) / 2, y + 16, `needs ${need}`, { class: "strong", "text-anchor": "middle" }));
    }
  });
  const hidden = alive.length - rows.length;
  const height = 22 + rows.length * ROW + 5;
  parts.push(T(LABELS - 12, 14, hidden > 0 ? `+${hidden}` : first ? `◂ ${first}` : "tokens", { class: "third", "text-anchor": "end" }));
  if (pool <= 42 && longest - first <= 5 && groups.length > 2) parts.push(...overSteps(look, LABELS + 6 * CELL, height));
  return { parts, height, arrows: anchors.length <= 12 ? anchors : [] };
}

let ends = null; // per step what each block was at its end: [owner or null, idle owner or null]
/** Block × step: full height while owned, a thin line while idle and findable. */
function overSteps(look, left, height) {
  ends = ends || groups.map((group) => {
    const state = stateAt(group.events.reduce((last, e) => (e.kind !== "run_engine" && e.kind !== "generate" && e.kind !== "chat" && e.t1 >= last.t1 ? e : last), group.plan || group.events[0]));
    const held = ownersOfAll(state);
    return Array.from({ length: pool }, (_, block) => [held.get(block)?.[0] ?? null, state.hashes.has(block) ? (state.last.get(block)?.[0] ?? null) : null]);
  });
  const width = look.width - left;
  const cell = width / groups.length;
  const row = Math.min(9, (Math.max(height, 96) - 24) / (pool - 1));
  const owned = new Map();
  const idles = new Map();
  ends.forEach((blocks, step) => {
    for (let block = 1; block < pool; block++) {
      const [owner, last] = blocks[block];
      const id = owner ?? last;
      if (id === null) continue;
      const thin = owner === null;
      const y = 20 + (block - 1) * row + (thin ? row / 2 - 0.6 : 0);
      const piece = `M${(left + step * cell).toFixed(1)},${y.toFixed(1)}h${(cell + 0.2).toFixed(1)}v${thin ? 1.2 : (row - 0.6).toFixed(1)}h${(-cell - 0.2).toFixed(1)}z`;
      const map = thin ? idles : owned;
      map.set(id, (map.get(id) || "") + piece);
    }
  });
  const here = left + look.group.index * cell;
  return [
    T(left, 14, "pool over the steps", { class: "strong" }),
    T(look.width, 14, "each row one block", { class: "third", "text-anchor": "end" }),
    ...[...owned, ...idles].map(([id, d]) => S("path", { d, fill: fillOf(id) })),
    T(left - 6, 20 + Math.max(9, row), "1", { class: "third", "text-anchor": "end" }),
    T(left - 6, 20 + (pool - 1) * row, pool - 1, { class: "third", "text-anchor": "end" }),
    S("rect", { x: here - 1, y: 18, width: Math.max(4, cell) + 2, height: (pool - 1) * row + 3, rx: 2, class: "here-box" }),
  ];
}

function arrows(tables, body, look) {
  return tables.arrows
    .filter(({ block }) => body.places.has(block))
    .map(({ x, y, block, lost }) => {
      const to = body.places.get(block);
      const bottom = to.y - (look.tags.has(block) && body.tagged ? 17 : 2);
      const half = (bottom - y) / 2;
      return S("path", { d: `M${x},${y}C${x},${y + half} ${to.x},${bottom - half} ${to.x},${bottom - 1}`, class: `arrow${lost ? " lost" : ""}`, "marker-end": lost ? "url(#head-lost)" : "url(#head)" });
    });
}

function lookOf(block, look) {
  // a block that is taken while a call is still under way has no table yet: it is the caller's request that takes it
  const taken = look.after.refs.has(block);
  const asking = look.e.reqs.length === 1 ? look.e.reqs : [];
  const ids = taken ? (look.held.get(block) ?? asking) : [];
  const hashed = look.after.hashes.has(block);
  return { ids, taken, hashed, idle: !taken && hashed, last: look.after.last.get(block) };
}
/** Which block of the request's table it is; undefined while it is in no table. */
function placeIn(block, id, look) {
  const place = (look.after.tables.get(id) || []).indexOf(block);
  return place < 0 ? undefined : place;
}
export function describeBlock(block, look) {
  const { ids, taken, hashed, idle: isIdle, last } = lookOf(block, look);
  const place = placeIn(block, ids[0], look) ?? (ids.length ? undefined : last?.[1]);
  const tokens = place === undefined ? "" : `, tokens ${place * blockSize}–${(place + 1) * blockSize - 1}`;
  const who = ids.length ? `held by request${ids.length > 1 ? "s" : ""} ${ids.map(nameOf).join(", ")}` : isIdle ? `idle, still findable, was of request ${last ? nameOf(last[0]) : "?"}` : taken ? "taken, in no table yet" : "free, no hash";
  return `Block ${block}: ${who}${ids.length || isIdle ? tokens : ""}; ref count ${look.after.refs.get(block) || 0}; slots ${block * blockSize}–${(block + 1) * blockSize - 1}; ${hashed ? `hash ${look.after.hashes.get(block)}` : "no hash"}.`;
}

/** The text of the tokens that a block stands for, as far as they are known; "" where nobody knows it. */
export function textIn(block, look) {
  const { ids, idle: isIdle, last } = lookOf(block, look);
  const id = ids[0] ?? (isIdle ? last?.[0] : undefined);
  const place = ids.length ? placeIn(block, id, look) : last?.[1];
  if (id === undefined || place === undefined) return "";
  const known = [...(params[id]?.promptIds ?? []), ...(look.after.requests.get(id)?.output ?? [])];
  const pieces = known.slice(place * blockSize, (place + 1) * blockSize).map(piece);
  if (!pieces.length || pieces.includes(null)) return "";
  return `“${pieces.map((text) => text.replaceAll("·", " ")).join("")}”`;
}

/** [computed before this step, and with it], tokens of a request. */
function filled(id, look) {
  const r = look.after.requests.get(id);
  const role = roles.get(id)?.get(look.group.index);
  const planned = role?.n && look.after.step === look.group.step && look.group.plan && look.after.step === look.group.plan.step;
  if (!r) return [0, 0];
  if (planned && r.num_computed_tokens === role.after) return [role.after - role.n, role.after];
  return [Math.max(r.num_computed_tokens, role?.hits || 0), Math.max(r.num_computed_tokens, role?.hits || 0)];
}

function drawCards(look, top, show) {
  const small = pool > 14;
  const perRow = small ? 16 : 14;
  const w = Math.floor((look.width - (perRow - 1) * 2) / perRow);
  const h = small ? 40 : 94;
  const parts = [];
  const places = new Map();
  for (let block = 0; block < pool; block++) {
    const x = (block % perRow) * (w + 2);
    const y = top + Math.floor(block / perRow) * (h + (small ? 16 : 4));
    places.set(block, { x: x + w / 2, y });
    parts.push(block ? card(block, x, y, w, h, look, show, small) : S("g", {}, S("rect", { x, y, width: w, height: h, rx: 3, fill: "url(#idle-x)", stroke: "var(--slice)" }), T(x + 5, y + 17, "0", { class: "block-number" }), S("rect", { x: x + 12, y: y + h - (small ? 20 : 30), width: w - 24, height: 16, fill: "var(--page)" }), T(x + w / 2, y + h - (small ? 8 : 18), "null", { class: "third", "text-anchor": "middle" })));
  }
  return { parts, places, tagged: true, bottom: top + Math.ceil(pool / perRow) * (h + (small ? 16 : 4)) - (small ? 14 : 2) };
}

function card(block, x, y, w, h, look, show, small) {
  const { ids, taken, hashed, idle: isIdle, last } = lookOf(block, look);
  const tag = look.tags.get(block);
  const mine = ids.includes(look.followed);
  const id = mine ? look.followed : ids[0];
  const g = S("g", { class: "card", style: id ? colour(id) : null, tabindex: 0, role: "img", "data-block": block, "aria-label": describeBlock(block, look) });
  const state = taken ? "owned" : isIdle ? "idle" : "free";
  g.dataset.state = state;
  if (ids.length > 1) ids.forEach((owner, i) => g.append(S("rect", { x: x + (w * i) / ids.length, y, width: w / ids.length, height: h, fill: fillOf(owner) })));
  g.append(S("rect", { x, y, width: w, height: h, rx: 3, fill: ids.length > 1 ? "none" : id ? fillOf(id) : isIdle ? idleFill(last?.[0]) : "none", class: `frame ${state}${tag && (id || !tag[1]) ? " here" : ""}`, style: !id && isIdle && last ? `stroke:${fillOf(last[0])}` : null }));
  if (ids.length > 1) g.append(S("rect", { x: x + 4, y: y + h - (small ? 15 : 36), width: w - 8, height: small ? 14 : 32, rx: 3, class: "plate" }));
  if (!id) g.append(S("rect", { x: x + 3, y: y + 3, width: w - 6, height: small ? 13 : 18, class: "plate bare" }));
  g.append(T(x + 5, y + (small ? 14 : 18), block, { class: `${small ? "strong" : "block-number"}${id ? " on-fill" : ""}` }));
  if (hashed) g.append(T(x + w - 6, y + (small ? 14 : 17), "#", { class: id ? "strong on-fill" : "strong", "text-anchor": "end" }));
  const place = id ? placeIn(block, id, look) : last?.[1];
  const span = place === undefined ? "" : `${place * blockSize}–${(place + 1) * blockSize - 1}`;
  const onFill = id && ids.length === 1 ? "on-fill" : "";
  if (!id && isIdle) g.append(S("rect", { x: x + 4, y: y + h - (small ? 17 : 34), width: w - 8, height: small ? 15 : 31, class: "plate bare" }));
  const words = id ? (ids.length > 1 ? `×${ids.length}` : `req ${nameOf(id)}`) : isIdle ? `was ${last ? nameOf(last[0]) : "?"}` : taken ? "taken" : "free";
  if (small) g.append(T(x + w / 2, y + h - 4, words, { class: `strong ${onFill}`, "text-anchor": "middle" }));
  else {
    g.append(T(x + w / 2, y + h - 20, words, { class: `strong ${onFill}`, "text-anchor": "middle" }));
    if (id || isIdle) g.append(T(x + w / 2, y + h - 7, span, { class: onFill, "text-anchor": "middle" }));
  }
  if (id && place !== undefined) g.append(...squares(block, place, id, small ? x + 5 : x + 9, small ? y + 17 : y + 24, small ? w - 10 : w - 18, small ? 7 : 34, look));
  if (tag) g.append(S("rect", { x, y: y - 16, width: w, height: 14, rx: 2, class: `tag${tag[1] ? " lost" : tag[0] === "new" ? " plain" : ""}` }), T(x + w / 2, y - 5, tag[0], { class: `tag-text${tag[0] === "new" && !tag[1] ? " plain" : ""}`, "text-anchor": "middle" }));
  return g;
}

/** The block's tokens: filled in the cache, hollow written in this step, faint not there yet. */
function squares(block, place, id, x, y, w, h, look) {
  const [old, now] = filled(id, look);
  const columns = h < 20 ? Math.min(blockSize, 16) : Math.ceil(Math.sqrt(blockSize));
  const rows = Math.ceil(blockSize / columns);
  const cw = w / columns;
  const ch = Math.min(h / rows, 9.5);
  return Array.from({ length: blockSize }, (_, i) => {
    const token = place * blockSize + i;
    const kind = token < old ? "in-cache" : token < now ? "written" : "not-yet";
    return S("rect", { x: x + (i % columns) * cw + 0.5, y: y + Math.floor(i / columns) * ch, width: Math.max(1, cw - 1.2), height: Math.max(1, ch - 1.5), class: kind });
  });
}

/** A large pool: one cell a block; above 2,048 blocks one cell for several, by its worst state. */
function drawGrid(look, top, show) {
  const used = pool;
  const per = used <= 2048 ? 1 : 2 ** Math.ceil(Math.log2(used / 2048));
  const cells = Math.ceil(used / per);
  const columns = cells <= 256 ? 32 : cells <= 1024 ? 64 : 96;
  const left = 40;
  const w = (look.width - left) / columns;
  const rows = Math.ceil(cells / columns);
  const h = Math.max(6, Math.min(20, w, (columns === 32 ? 168 : 190) / rows));
  const parts = [S("defs", {}, S("pattern", { id: "free-cell", width: w, height: h, patternUnits: "userSpaceOnUse", x: left, y: top }, S("rect", { x: 1, y: 1, width: w - 2, height: h - 2, class: "free-cell" })))];
  const places = new Map();
  const whole = Math.floor(cells / columns);
  parts.push(S("rect", { x: left, y: top, width: columns * w, height: whole * h, fill: "url(#free-cell)" }));
  if (cells % columns) parts.push(S("rect", { x: left, y: top + whole * h, width: (cells % columns) * w, height: h, fill: "url(#free-cell)" }));
  for (let row = 0; row < rows; row += h < 12 ? 2 : 1) parts.push(T(left - 6, top + row * h + Math.min(h, 12) - 1, count(row * columns * per), { class: "third", "text-anchor": "end" }));
  for (let cell = 0; cell < cells; cell++) {
    const x = left + (cell % columns) * w;
    const y = top + Math.floor(cell / columns) * h;
    let best = null;
    for (let block = cell * per; block < Math.min(pool, (cell + 1) * per); block++) {
      places.set(block, { x: x + w / 2, y });
      const seen = lookOf(block, look);
      if (block && (seen.taken || seen.hashed || look.tags.has(block))) if (!best || seen.ids.length > best.ids.length) best = { block, ...seen };
    }
    if (cell === 0) parts.push(S("rect", { x: x + 1, y: y + 1, width: w - 2, height: h - 2, fill: "url(#idle-x)" }));
    if (best) parts.push(gridCell(best, { x, y, w, h, numbered: w >= 20 && h >= 14 && per === 1 }, look));
  }
  if (per > 1) parts.push(T(left, top + rows * h + 12, `one cell stands for ${per} blocks`, { class: "third" }));
  return { parts, places, tagged: false, bottom: top + rows * h + (per > 1 ? 16 : 4) };
}

const kept = new Map(); // block -> {key, element}: most look from event to event as they did
function gridCell(best, { x, y, w, h, numbered }, look) {
  const { block, ids, last, taken, hashed } = best;
  const tag = look.tags.get(block);
  const mine = ids.includes(look.followed);
  const label = describeBlock(block, look);
  const key = [x, y, w, h, ids, mine, tag, colourKey(), label].join("|");
  if (kept.get(block)?.key === key) return kept.get(block).element;
  const g = S("g", { class: "card", tabindex: 0, role: "img", "data-block": block, "data-state": taken ? "owned" : hashed ? "idle" : "free", "aria-label": label });
  if (ids.length > 1) ids.slice(0, 6).forEach((id, i, all) => g.append(S("rect", { x: x + 1 + ((w - 2) * i) / all.length, y: y + 1, width: (w - 2) / all.length, height: h - 2, fill: fillOf(id) })));
  g.append(S("rect", { x: x + 1, y: y + 1, width: w - 2, height: h - 2, rx: 2, fill: ids.length > 1 ? "none" : ids.length ? fillOf(ids[0]) : hashed ? idleFill(last?.[0]) : "var(--page)", class: `frame ${ids.length ? "owned" : "idle"}${tag ? (tag[1] ? " lost" : " here") : mine ? " mine" : ""}` }));
  if (numbered) {
    if (!ids.length) g.append(S("rect", { x: x + w / 2 - 8, y: y + 3, width: 16, height: h - 6, class: "plate bare" }));
    g.append(T(x + w / 2, y + h / 2 + 4.5, block, { class: ids.length === 1 ? "strong on-fill" : ids.length ? "strong on-fill haloed-fill" : "", style: ids.length ? colour(ids[0]) : null, "text-anchor": "middle" }));
  }
  kept.set(block, { key, element: g });
  return g;
}

function queues(look) {
  const was = [...look.before.free.keys()];
  const is = [...look.after.free.keys()];
  const same = was.length === is.length && was.every((block, i) => block === is[i]);
  const width = look.width - 160;
  const row = (blocks, words, struck) => {
    const list = H("div", { class: "queue", "data-when": words, "data-blocks": blocks.slice(0, 40).join(" "), "data-length": blocks.length });
    if (!blocks.length) list.append(H("b", {}, "empty"), H("span", { class: "third" }, " nothing can be handed out"));
    const room = Math.max(3, Math.floor((width - 120) / 47));
    const shown = blocks.length > room ? blocks.slice(0, room - 1) : blocks;
    for (const block of shown) {
      const hashed = (words === "before" ? look.before : look.after).hashes.has(block);
      const last = (words === "before" ? look.before : look.after).last.get(block);
      const gone = struck && !look.after.free.has(block);
      list.append(H("span", { class: `queued${hashed ? " idle" : ""}${gone ? " gone" : ""}`, "data-block": block, style: hashed && last ? colour(last[0]) : "" }, H("span", {}, hashed ? `${block} #` : block)));
    }
    if (shown.length < blocks.length) list.append(H("span", { class: "third" }, `${count(blocks.length - shown.length - 1)} more, `), H("span", { class: "queued", "data-block": blocks[blocks.length - 1] }, H("span", {}, blocks[blocks.length - 1])));
    return H("div", { class: "queue-row" }, H("span", { class: "third when" }, words), list);
  };
  return H("div", { class: "queues" }, H("b", {}, "free queue"), H("div", { class: "queue-rows" }, same ? row(is, "next ▸", false) : [row(was, "before", true), row(is, "after", false)]));
}

function legend() {
  const swatch = (kind, words) => H("span", { class: "legend-item" }, H("i", { class: `swatch ${kind}` }), words);
  return H("div", { class: "legend" }, swatch("owned", "owned"), swatch("idle", "idle, still findable"), swatch("free", "free, empty"), H("span", { class: "legend-item" }, H("b", {}, "# "), "full block, hash known"), ...(pool <= 42 ? [swatch("in-cache", "token in cache"), swatch("written", "written this step")] : []));
}
