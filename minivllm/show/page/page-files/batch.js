// Flat batch: the step's tokens by the blocks that they are written to; which rows give logits.
// Must not know: why they were scheduled.

import { blockSize, count, nameOf, piece, plural } from "data.js";
import { H, chip, colour, fitted, textWidth } from "marks.js";

const MOST_ROWS = 400;
const ROW_HEIGHT = 35;

/** Rows of one block each: {cut, id, block, cells: [{offset, flat, token, position, logits}]} */
export function batchRows(batch, states) {
  const rows = [];
  const logits = new Set(batch.logits_indices);
  const ids = states?.req_ids || [];
  for (let r = 0; r + 1 < batch.query_start_loc.length; r++) {
    const [start, end] = [batch.query_start_loc[r], batch.query_start_loc[r + 1]];
    rows.push({ cut: r, start, end, id: ids[r], first: batch.positions[start], length: batch.seq_lens?.[r] });
    let row = null;
    for (let flat = start; flat < end; flat++) {
      const slot = batch.slot_mapping[flat];
      const block = Math.floor(slot / blockSize);
      if (!row || row.block !== block) {
        row = { id: ids[r], block, cells: [] };
        rows.push(row);
      }
      const token = Array.isArray(batch.input_ids) ? batch.input_ids[flat] : null;
      row.cells.push({ offset: slot % blockSize, flat, token, position: batch.positions[flat], slot, logits: logits.has(flat) });
    }
  }
  return rows;
}

/** How a token comes to its slot, in numbers. */
function formulaOf(batch, flat) {
  const [position, slot] = [batch.positions[flat], batch.slot_mapping[flat]];
  return `${flat ? `flat row ${flat}` : "first token"}: position ${position} → logical block ${Math.floor(position / blockSize)} → block ${Math.floor(slot / blockSize)}, offset ${position % blockSize} → slot ${Math.floor(slot / blockSize)} × ${blockSize} + ${position % blockSize} = ${slot}`;
}

export function drawBatch(host, { group, after, followed, signal }) {
  const batch = group.batch;
  if (!batch || !batch.query_start_loc) {
    host.append(H("p", { class: "empty" }, "No batch in this step: nothing was computed. A step with tokens has one, made by prepare_inputs."));
    return;
  }
  const states = group.events.find((e) => e.kind === "update_states");
  const rows = batchRows(batch, states);
  const columns = Math.min(blockSize, 16);
  const cellWidth = Math.floor((host.clientWidth - 32 - 16 - 124) / columns);
  const template = `grid-template-columns: 120px repeat(${columns}, ${cellWidth}px)`;
  host.append(H("div", { class: "batch-head", style: template }, H("span", { class: "third" }, "block, slots"), Array.from({ length: columns }, (_, i) => H("span", { class: "third" }, i))));
  const list = H("div", { class: "batch", tabindex: 0, role: "group", "aria-label": `${plural(batch.num_tokens, "token")} of the step` });
  host.append(list);
  const formula = H("span", { class: "third" }, formulaOf(batch, 0));
  host.append(H("p", { class: "formula" }, H("b", {}, `slot = block × ${blockSize} + offset`), " ", formula));
  const show = (event) => {
    const token = event.target.closest?.(".token");
    if (token) formula.textContent = formulaOf(batch, Number(token.dataset.flat));
  };
  for (const kind of ["pointerover", "focusin"]) host.addEventListener(kind, show, { signal });
  fill(list, rows, template, cellWidth, after, followed, columns);
}

/** Only the rows in sight are built. */
function fill(list, rows, template, cellWidth, after, followed, columns) {
  const heights = rows.map((row) => (row.cut !== undefined ? 21 : ROW_HEIGHT * Math.ceil(blockSize / columns) + 1));
  const tops = [];
  let total = 0;
  for (const height of heights) {
    tops.push(total);
    total += height;
  }
  const inside = H("div", { class: "inside", style: `height:${total}px` });
  list.append(inside);
  const build = () => {
    const from = list.scrollTop - 200;
    const to = list.scrollTop + list.clientHeight + 200;
    const shown = [];
    for (let i = 0; i < rows.length && shown.length < MOST_ROWS; i++) {
      if (tops[i] + heights[i] < from || tops[i] > to) continue;
      const element = rows[i].cut !== undefined ? cutRow(rows[i], after) : blockRow(rows[i], template, cellWidth, followed, columns);
      element.style.top = `${tops[i]}px`;
      shown.push(element);
    }
    inside.replaceChildren(...shown);
  };
  list.addEventListener("scroll", build);
  const own = rows.findIndex((row) => row.cut !== undefined && row.id === followed);
  if (own > 0 && tops[own] + 80 > list.clientHeight) list.scrollTop = tops[own];
  build();
}

function blocksBefore(table, first) {
  const blocks = table.slice(0, Math.ceil(first / blockSize));
  if (!blocks.length) return "since given back";
  return blocks.length <= 6 ? blocks.join(", ") : `${blocks.slice(0, 5).join(", ")} and ${blocks.length - 5} more`;
}
function cutRow({ cut, start, end, id, first }, after) {
  const before = first ? [` positions 0–${first - 1}: in the cache, in blocks ${blocksBefore(after.tables.get(id) || [], first)}`] : "";
  return H("div", { class: "cut", "data-start": start }, H("span", { class: "cut-label" }, `query_start_loc[${cut}] = ${start}`), H("span", { class: "third" }, ` request ${id === undefined ? "?" : nameOf(id)}, ${plural(end - start, "token")}${before ? ";" : "."}${before}`), H("i"));
}

function blockRow({ id, block, cells }, template, cellWidth, followed, columns) {
  const row = H("div", { class: "block-row", style: `${template};${id ? colour(id) : ""}`, "data-block": block });
  row.append(H("div", { class: "block-name" }, id ? chip(id) : "", H("span", {}, H("b", {}, `block ${block}`), H("span", { class: "third" }, `${count(block * blockSize)}–${count((block + 1) * blockSize - 1)}`))));
  const byOffset = new Map(cells.map((cell) => [cell.offset, cell]));
  const end = cells[cells.length - 1];
  for (let offset = 0; offset < blockSize; offset++) {
    const cell = byOffset.get(offset);
    const style = `grid-column:${(offset % columns) + 2};grid-row:${Math.floor(offset / columns) + 1}`;
    if (cell) {
      const text = cell.token === null ? "▒" : (piece(cell.token) ?? String(cell.token));
      const wide = textWidth(text, 12, 600);
      const squeeze = Math.max(0.6, Math.min(1, (cellWidth - 5) / wide)); // narrow letters before cut ones
      const shown = fitted(text, (cellWidth - 5) / squeeze, 12, 600);
      row.append(H("div", { class: `token${cell.logits ? " here" : ""}`, style, "data-flat": cell.flat, "data-slot": cell.slot, "data-position": cell.position, "data-say": `flat row ${cell.flat}: token ${cell.token ?? "left out"}${cell.token !== null && piece(cell.token) !== null ? ` “${piece(cell.token)}”` : ""}, position ${cell.position}, slot ${cell.slot}${cell.logits ? ", gives logits" : ""}` }, H("bdi", { style: squeeze < 1 ? `transform:scaleX(${squeeze.toFixed(2)})` : null }, shown), H("span", {}, cell.position)));
    } else if (end.logits && offset === end.offset + 1 && offset % columns && offset % columns < columns - 1) row.append(H("div", { class: "logits", style: `${style};grid-column-end:span 2` }, H("b", {}, "◂ logits"), H("span", { class: "third" }, `flat row ${end.flat}`)));
    else if (!(end.logits && offset === end.offset + 2 && offset % columns > 1)) row.append(H("div", { class: `no-token${offset < cells[0].offset ? " older" : ""}`, style }));
  }
  return row;
}
