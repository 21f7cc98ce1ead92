// Attention: the programs of a launch, the tile walk of one of them; who reads which blocks, and which slots are written.
// Must not know: why they were scheduled.

import { blockSize, count, nameOf, piece, plural, ranges } from "data.js";
import { H, S, T, chip, colour, fillOf, mark, textWidth, title } from "marks.js";

const LABELS = 112;

export function drawAttention(host, { e, group, after, go }) {
  const width = Math.max(600, host.clientWidth - 32);
  const batch = group.batch;
  if (!batch || !batch.query_start_loc) {
    host.append(H("p", { class: "empty" }, "No attention in this step: nothing was computed."));
    return;
  }
  const launch = launchOf(e, group);
  if (launch) drawLaunch(host, launch, e, group, width, go);
  else host.append(reads(group, after, width), thin(group));
  host.append(writes(batch));
}

function launchOf(e, group) {
  if (e.kind === "kernel.launch") return e;
  if (e.kind === "kernel.program" && e.up) return e.up;
  const inside = e.children.find((child) => child.kind === "kernel.launch");
  if (inside) return inside;
  const all = group.events.filter((other) => other.kind === "kernel.launch" && !/cache/.test(other.name || ""));
  return all.find((other) => other.children.length) || all[0] || null;
}

// ------------------------------------------------------------------ a launch

function requestOf(program, group) {
  const batch = group.batch;
  const ids = group.events.find((other) => other.kind === "update_states")?.req_ids || [];
  const reads = program.reads || {};
  const flat = (reads.q || reads.key || reads.query)?.[0]?.[0];
  if (flat !== undefined) return ids[batch.query_start_loc.findIndex((start, i) => flat >= start && flat < batch.query_start_loc[i + 1])];
  return undefined;
}
const tilesOf = (program) => (program.tiles || []).length;
const works = (program) => Object.keys(program.writes || {}).length > 0 || tilesOf(program) > 0;

function drawLaunch(host, launch, e, group, width, go) {
  const programs = launch.children.filter((child) => child.kind === "kernel.program");
  const total = (launch.grid || []).reduce((all, n) => all * n, 1);
  host.append(H("p", { class: "launch-head" }, H("b", {}, plural(total, "program")), H("code", {}, launch.name), H("span", { class: "third" }, `grid ${(launch.grid || []).join(" × ")}${launch.device_us ? `, ${launch.device_us} µs on the GPU` : ""}`)));
  if (!programs.length) {
    host.append(H("p", { class: "empty" }, "This launch was recorded without its programs. Detail 2 has them, for one layer, where the kernels run in Triton's interpreter (no GPU)."));
    return;
  }
  const most = programs.reduce((best, program) => (tilesOf(program) > tilesOf(best) ? program : best), programs[0]);
  const chosen = e.kind === "kernel.program" ? e : most;
  host.append(grid(programs, chosen, group, width, go), walk(chosen, launch, group, width));
}

function grid(programs, chosen, group, width, go) {
  const axis = /attention|decode/.test(chosen.up.name || "") ? "KV head" : "axis 1 ="; // what the second axis of the grid stands for
  const key = (program) => `${program.program[0]}.${program.program[2] ?? 0}`;
  const columns = [...new Set(programs.map(key))];
  const rows = [...new Set(programs.map((program) => program.program[1] ?? 0))].slice(0, 8);
  const room = Math.floor((width - LABELS) / 26);
  const first = Math.max(0, Math.min(columns.length - room, columns.indexOf(key(chosen)) - (room >> 1)));
  const shown = columns.slice(first, first + room);
  const cell = Math.min(42, (width - LABELS) / shown.length);
  const svg = S("svg", { width, height: rows.length * 24 + 8, role: "group", "aria-label": "programs of the launch" });
  const at = new Map(programs.map((program) => [`${key(program)}/${program.program[1] ?? 0}`, program]));
  rows.forEach((row, y) => {
    svg.append(T(0, y * 24 + 16, `${axis} ${row}`, { class: "strong" }));
    shown.forEach((column, x) => {
      const program = at.get(`${column}/${row}`);
      if (!program) return;
      const id = requestOf(program, group);
      const busy = works(program);
      const g = S("g", { class: "card program", style: colour(id), tabindex: 0, role: "button", "data-program": program.program.join(" "), "data-tiles": tilesOf(program), "aria-label": `program ${program.program.join(", ")}: ${plural(tilesOf(program), "tile")}`, onclick: () => go(program.seq) });
      g.append(S("rect", { x: LABELS + x * cell + 1, y: y * 24 + 1, width: cell - 2, height: 20, rx: 3, class: busy ? `mark${program === chosen ? " here" : ""}` : `idle-program${program === chosen ? " here" : ""}` }));
      g.append(T(LABELS + x * cell + cell / 2, y * 24 + 15.5, busy ? tilesOf(program) || "·" : "–", { class: busy && id ? "mark-text" : "", "text-anchor": "middle" }), title(`program (${program.program.join(", ")}), ${id ? `request ${nameOf(id)}` : "no token"}, ${plural(tilesOf(program), "tile")}`));
      svg.append(g);
    });
  });
  const idle = programs.filter((program) => !works(program)).length;
  const note = `number: tiles of keys it walks${idle ? `; – ${idle === 1 ? "one finds" : `${idle} find`} no work and leave` : ""}${shown.length < columns.length ? `; columns ${first}–${first + shown.length - 1} of ${columns.length}` : ""}`;
  return H("div", { class: "heat" }, svg, H("p", { class: "third small-note" }, note));
}

/** The online softmax, tile by tile, of one row of the program. */
function walk(program, launch, group, width) {
  const box = H("div", { class: "walk" });
  const tiles = program.tiles || [];
  const id = requestOf(program, group);
  const G = launch.constants?.G || 1;
  const flats = (program.reads?.q || []).map(([flat]) => flat);
  const rows = (program.rows || []).map((row, i) => ({ row, i, flat: flats[Math.floor(row / G)], head: (program.reads?.q?.[0]?.[1] ?? 0) + (row % G) })).filter(({ i, flat }) => flat !== undefined && tiles.some((tile) => tile.row_max[i] !== null && tile.row_max[i] !== undefined));
  box.append(H("h3", {}, `program (${program.program.slice(0, launch.grid?.length || 3).join(", ")})`, id ? [" ", chip(id)] : "", H("span", { class: "third" }, rows.length ? ` flat rows ${ranges(flats)}; below, one of its rows:` : tiles.length ? "" : works(program) ? " walks no keys: it writes" : " finds no work and leaves")));
  if (!rows.length) {
    box.append(accesses(program));
    return box;
  }
  const select = H("select", { "aria-label": "row of the program" }, rows.map(({ flat, head }, n) => H("option", { value: n, selected: n === rows.length - 1 }, `position ${group.batch.positions[flat]}, query head ${head}${piece(group.batch.input_ids?.[flat]) ? `, “${piece(group.batch.input_ids[flat])}”` : ""}`)));
  const picture = H("div", {});
  const draw = () => picture.replaceChildren(softmax(tiles, rows[select.value].i, id, width));
  select.addEventListener("change", draw);
  box.lastChild.append(" ", select);
  draw();
  box.append(picture);
  return box;
}

const keysIn = (tile) => (tile.keys || []).reduce((sum, run) => sum + (run[2] - run[1] + 1), 0);
const shown = (value) => (value === null || value === undefined ? "–" : Math.abs(value) >= 1000 ? value.toExponential(2) : value.toFixed(2));

/** What each tile adds to the weights in the end, in parts of 1: from the recorded sums alone. */
export function tileWeights(tiles, i) {
  let before = 0;
  const added = tiles.map((tile, n) => {
    const sum = tile.row_sum[i] ?? 0;
    const kept = n ? before * (tile.correction[i] ?? 1) : 0;
    before = sum;
    return sum - kept;
  });
  let later = 1;
  for (let n = tiles.length - 1; n >= 0; n--) {
    added[n] *= later;
    later *= n ? (tiles[n].correction[i] ?? 1) : 1;
  }
  const total = tiles.length ? (tiles[tiles.length - 1].row_sum[i] ?? 1) : 1;
  return added.map((value) => value / (total || 1));
}

function softmax(tiles, i, id, width) {
  const most = Math.max(1, Math.floor((width - LABELS) / 150));
  const first = Math.max(0, tiles.length - most);
  const some = tiles.slice(first);
  const w = Math.min(240, (width - LABELS) / some.length);
  const svg = S("svg", { width, height: 150, style: colour(id), role: "img", "aria-label": "online softmax, tile by tile" });
  const weights = tileWeights(tiles, i);
  let key = tiles.slice(0, first).reduce((sum, tile) => sum + keysIn(tile), 0);
  for (const [y, words, more] of [[14, "tile", ""], [36, "blocks read", ""], [62, "running max", "m"], [84, "correction", "α"], [106, "running sum", "ℓ"], [130, "final weight", ""]]) svg.append(T(0, y, words, { class: "strong" }), more ? T(LABELS - 12, y, more, { class: "third", "text-anchor": "end" }) : "");
  some.forEach((tile, n) => {
    const x = LABELS + n * w;
    const number = first + n;
    const keys = keysIn(tile);
    svg.append(S("line", { x1: x, x2: x, y1: 2, y2: 144, class: "cursor" }), T(x + 6, 14, `${number}: keys ${key}–${key + keys - 1}`, { class: "strong" }));
    let at = x + 4;
    for (const [block, from, to] of tile.keys || []) {
      const size = ((w - 10) * (to - from + 1)) / Math.max(1, keys);
      svg.append(S("rect", { x: at, y: 22, width: Math.max(1, size - 1), height: 18, class: "mark", "data-block": block, "data-say": `block ${block}, offsets ${from}–${to}` }));
      if (textWidth(String(block), 12, 700) + 3 < size) svg.append(T(at + size / 2, 35.5, block, { class: "mark-text", "text-anchor": "middle" }));
      at += size;
    }
    const old = number ? tiles[number - 1] : null;
    const alpha = number ? `exp(${shown(old.row_max[i])} − ${shown(tile.row_max[i])}) = ` : "";
    svg.append(T(x + 6, 62, shown(tile.row_max[i]), { class: "strong" }), T(x + 6, 84, `${w > 200 ? alpha : ""}${number ? shown(tile.correction[i]) : "first tile"}`, {}), T(x + 6, 106, shown(tile.row_sum[i]), {}));
    svg.append(S("rect", { x: x + 4, y: 118, width: Math.max(1, (w - 70) * weights[number]), height: 14, fill: fillOf(id), stroke: "var(--edge)" }), T(x + 10 + (w - 70) * weights[number], 130, `${(weights[number] * 100).toFixed(1)} %`, { class: "strong" }));
    key += keys;
  });
  return H("div", {}, svg, first ? H("p", { class: "third small-note" }, `tiles 0–${first - 1} are before these`) : "");
}

function accesses(program) {
  const list = (runs) => runs.slice(0, 6).map((run) => `[${run.join(" ")}]`).join(" ") + (runs.length > 6 ? ` and ${runs.length - 6} more` : "");
  const rows = [...Object.entries(program.reads || {}).map(([name, runs]) => ["reads", name, list(runs)]), ...Object.entries(program.writes || {}).map(([name, runs]) => ["writes", name, list(runs)])];
  return H("table", { class: "accesses" }, H("tbody", {}, rows.map(([verb, name, text]) => H("tr", {}, H("th", {}, verb), H("td", {}, H("code", {}, name)), H("td", {}, text)))));
}

// ------------------------------------------------------------------ without launches

/** Each request's queries of this step, and the blocks that they read: that much is known at detail 0. */
function reads(group, after, width) {
  const batch = group.batch;
  const states = group.events.find((other) => other.kind === "update_states");
  const ids = states?.req_ids || [];
  const tables = new Map((after.rows || []).map((row) => [row.req_id, row.block_ids]));
  const all = ids.map((id, r) => ({ id, queries: batch.query_start_loc[r + 1] - batch.query_start_loc[r], keys: batch.seq_lens[r], table: tables.get(id) || states.block_tables?.[id] || [] }));
  const some = all.slice(0, 6);
  const svg = S("svg", { width, height: 24 + some.length * 30, role: "img", "aria-label": "which blocks the queries read" });
  svg.append(T(0, 14, "reads", { class: "strong" }), T(LABELS + 70, 14, "through the block table, in this order", { class: "third" }));
  const room = width - LABELS - 190;
  some.forEach(({ id, queries, keys, table }, r) => {
    const y = 22 + r * 30;
    const used = table.slice(0, Math.ceil(keys / blockSize));
    const w = Math.min(56, room / Math.max(1, used.length));
    const g = S("g", { style: colour(id), "data-request": id, "data-queries": queries, "data-keys": keys, class: "reads-row" });
    g.append(mark(id, y + 2), T(34, y + 16.5, plural(queries, "query").replace("querys", "queries")));
    used.forEach((block, i) => {
      const part = Math.min(1, (keys - i * blockSize) / blockSize);
      g.append(S("rect", { x: LABELS + 70 + i * w, y, width: Math.max(1, w - 2), height: 24, rx: 2, class: "free-bar" }), S("rect", { x: LABELS + 70 + i * w, y, width: Math.max(1, (w - 2) * part), height: 24, rx: 2, class: "mark", "data-block": block, "data-say": `block ${block}: ${Math.round(part * blockSize)} of ${blockSize} keys` }));
      if (textWidth(String(block), 12, 700) + 4 < w) g.append(T(LABELS + 70 + i * w + Math.min((w - 2) / 2, 14), y + 16.5, block, { class: "mark-text", "text-anchor": "middle" }));
    });
    g.append(T(LABELS + 78 + used.length * w, y + 16.5, plural(keys, "key"), { class: "strong" }));
    svg.append(g);
  });
  return H("div", { class: "heat" }, svg, all.length > some.length ? H("p", { class: "third small-note" }, `and ${plural(all.length - some.length, "request")} more`) : "");
}

function thin(group) {
  const layers = group.events.filter((other) => other.kind === "attention");
  const known = layers.length > 1 ? `${layers.length} layers were recorded, without kernel launches.` : "The layers were summed up.";
  return H("p", { class: "thin" }, `${known} Programs and tiles need the Triton kernels and detail 2: `, H("code", {}, 'LLM(…, attention_backend="triton", trace_detail=2)'), ".");
}

function writes(batch) {
  const slots = batch.slot_mapping;
  const byBlock = new Map();
  for (const slot of slots) byBlock.set(Math.floor(slot / blockSize), [...(byBlock.get(Math.floor(slot / blockSize)) || []), slot]);
  const some = [...byBlock].slice(0, 8);
  return H("div", { class: "writes", "data-slots": slots.length }, H("b", {}, "writes"), H("span", {}, `${plural(slots.length, "key")} and values, in every layer: `), some.map(([block, list]) => H("span", { class: "written-block", "data-block": block }, H("b", {}, `block ${block}`), ` slots ${ranges(list)}`)), byBlock.size > some.length ? H("span", { class: "third" }, `and ${count(byBlock.size - some.length)} blocks more`) : "");
}
