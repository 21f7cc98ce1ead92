// Where each event of a step lies on the timeline: lane, row, and left and right edge.
// Must not know: how it is drawn.

import { hasProcesses, nameOf, piece, roles, stepName } from "data.js";
import { textWidth } from "marks.js";

export const LANES = [
  { name: "caller", rows: 4, note: "your process" },
  { name: "IPC", rows: 1, note: "" },
  { name: "engine core", rows: 4, note: hasProcesses ? "own process" : "same process" },
  { name: "worker", rows: 2, note: "" },
  { name: "kernels", rows: 1, note: "" },
];
const WORKER = "executor.execute_model worker.execute_model update_states prepare_inputs get_slot_mappings build_attention_metadata model_forward compute_logits sample_tokens sampler.forward".split(" ");
const KERNELS = ["do_kv_cache_update", "attention", "kernel.launch", "kernel.program"];
const IPC = ["core_client.send", "core.receive", "core.send", "core_client.receive"];
const CORE = "preprocess_add_request scheduler.add_request step schedule get_computed_blocks allocate_slots cache_blocks forget_uncomputed_blocks free get_cached_block touch get_new_blocks cache_full_blocks free_blocks reset_prefix_cache update_from_output finish_requests".split(" ");

export function laneOf(e) {
  const kind = e.kind === "unfinished" ? e.of : e.kind;
  if (IPC.includes(kind)) return 1;
  if (KERNELS.includes(kind)) return 4;
  if (WORKER.includes(kind)) return kind === "executor.execute_model" || kind === "sample_tokens" ? 2 : 3;
  if (CORE.includes(kind)) return 2;
  return 0;
}
/** Rows count from the top of the lane; what is nested deeper than the lane has rows stays in its last row. */
export function rowOf(e) {
  const lane = laneOf(e);
  if (lane === 1 || lane === 4) return 0;
  if (lane === 2 && (e.kind === "preprocess_add_request" || e.kind === "scheduler.add_request")) return 1;
  let depth = 0;
  for (let up = e.up; up; up = up.up) if (laneOf(up) === lane) depth += 1;
  return Math.min(depth, LANES[lane].rows - 1);
}

const digit = (e) => (e.reqs.length === 1 ? nameOf(e.reqs[0]) : "");
const LABELS = {
  // from long to short; the digit of the request is put in front by the caller of this table
  get_computed_blocks: (e) => [`hits ${e.num_hit_tokens ?? 0}`, `${e.num_hit_tokens ?? 0}`],
  allocate_slots: (e) => (e.refused ? ["⊘ refused", "⊘"] : [`alloc +${(e.new_block_ids || []).length}`, `+${(e.new_block_ids || []).length}`]),
  free: (e) => (e.up?.kind === "schedule" ? ["✕ preempt", "✕"] : ["free"]),
  get_cached_block: (e) => (e.block_id == null ? ["miss"] : [`hit ${e.block_id}`, "hit"]),
  get_new_blocks: (e) => [`new ${(e.block_ids || []).join(" ")}`, `+${(e.block_ids || []).length}`],
  touch: (e) => [`touch ${(e.block_ids || []).join(" ")}`, "touch"],
  free_blocks: () => ["free_blocks", "free"],
  cache_blocks: () => ["cache_blocks", "cache"],
  cache_full_blocks: (e) => [`hash ${(e.block_ids || []).join(" ")}`, "hash"],
  detokenize: (e) => ["detok", ""],
  step: (e) => [stepName(e.group)],
  forget_uncomputed_blocks: () => ["forget_uncomputed", "forget"],
  "core_client.send": (e) => [`${e.message_type} ${e.num_bytes} B`, e.message_type],
  "core.send": (e) => [`${e.message_type} ${e.num_bytes} B`, e.message_type],
  "core.receive": (e) => ["receive", "r"],
  "core_client.receive": (e) => ["receive", "r"],
  "executor.execute_model": () => ["execute_model", "execute"],
  "worker.execute_model": () => ["execute_model", "execute"],
  update_states: () => ["states"],
  prepare_inputs: () => ["inputs"],
  get_slot_mappings: () => ["slots"],
  build_attention_metadata: () => ["metadata"],
  model_forward: () => ["forward"],
  compute_logits: () => ["logits"],
  sample_tokens: () => ["sample"],
  "sampler.forward": () => ["sampler"],
  update_from_output: () => ["update"],
  "kernel.launch": (e) => [e.name || "launch", "launch"],
  "kernel.program": () => [""],
  do_kv_cache_update: (e) => (e.layer == null ? [`write K/V × ${e.calls}`, "write"] : [""]),
  attention: (e) => (e.layer == null ? [`attention × ${e.calls}`, "attn"] : [""]),
  get_output: () => [hasProcesses ? "get_output: waits for the core" : "get_output", "get_output"],
  process_outputs: () => ["process_outputs", "outputs"],
  "llm_engine.add_request": () => ["add_request", "add"],
  "output_processor.add_request": () => ["open", ""],
  "core_client.add_request": () => ["to core", ""],
  "scheduler.add_request": () => ["queue", ""],
  preprocess_add_request: () => ["hash", ""],
  process_inputs: () => ["check"],
  assign_request_id: () => ["id"],
};
const WITH_DIGIT = "get_computed_blocks allocate_slots free detokenize output_processor.add_request core_client.add_request scheduler.add_request preprocess_add_request core_client.send".split(" ");
export const labelsOf = (e) => (LABELS[e.kind] ? LABELS[e.kind](e) : [e.kind]);
export const digitOf = (e) => (WITH_DIGIT.includes(e.kind) ? digit(e) : "");
/** level 0: the long name; 1: the short one; 2: what only leads up to the step, and what is deepest, gives way. */
const labelWidth = (e, level) => {
  if (e.kind === "kernel.program") return 3;
  if (level === 2 && !e.children.length && ((laneOf(e) === 0 && e.step == null) || (laneOf(e) === 2 && rowOf(e) === 3))) return 12;
  const labels = labelsOf(e);
  const label = labels[Math.min(level, labels.length - 1)];
  const front = digitOf(e);
  return Math.max(8, textWidth(front ? `${front} ${label}` : label, 12, 500) + 10);
};

/**
 * Event order: the entries and exits of all events in the order of their times, each event at least as wide as its
 * label. Returns {items: [{e, x0, x1, lane, row, open, label}], width}; x from 0 to the width.
 */
export function orderLayout(group, width) {
  for (let level = 0; ; level++) {
    const items = placed(group, level);
    const total = items.reduce((right, item) => Math.max(right, item.x1), 1);
    if (total <= width || level === 2) {
      const scale = width / total;
      for (const item of items) {
        item.x0 *= scale;
        item.x1 *= scale;
        item.level = level;
      }
      makeRoom(items);
      return items;
    }
  }
}

/** What holds an event that lies in the same row is drawn only up to that event. */
function makeRoom(items) {
  const byEvent = new Map(items.map((item) => [item.e, item]));
  for (const item of items) {
    const around = byEvent.get(item.e.up);
    if (around && around.lane === item.lane && around.row === item.row && !item.e.calls) around.draw1 = Math.min(around.draw1 ?? around.x1, item.x0);
  }
}

function placed(group, level) {
  const moments = [];
  const own = [...group.open, ...group.events];
  const inside = new Set(group.events);
  const items = own.map((e) => ({ e, x0: 0, x1: 0, lane: laneOf(e), row: rowOf(e), open: !inside.has(e), late: false }));
  const end = Math.max(...group.events.filter((e) => !stays(e, group)).map((e) => e.t1), group.t1);
  items.forEach((item, i) => {
    const { e } = item;
    if (item.open) return; // it began before: from the very left
    moments.push({ t: e.t0, seq: e.seq, i, entry: true });
    if (stays(e, group)) item.late = e.t1 > end; // and goes on: to the very right
    else moments.push({ t: e.t1, seq: e.seq, i, entry: false });
  });
  moments.sort((a, b) => a.t - b.t || (a.entry === b.entry ? (a.entry ? a.seq - b.seq : b.seq - a.seq) : a.entry ? -1 : 1));
  let x = 0;
  for (const m of moments) {
    const item = items[m.i];
    if (m.entry) x = item.x0 = x + 1.5;
    else {
      const layer = item.e.layer != null;
      const leaf = item.e.children.length === 0;
      const need = layer ? 3 : labelWidth(item.e, leaf ? level : Math.max(1, level));
      x = item.x1 = Math.max(x + 1, item.x0 + (item.e.calls != null ? 2 * need : need));
    }
  }
  for (const item of items) if (item.open || stays(item.e, group)) item.x1 = x + 1;
  return sideBySide(items);
}

/** The sums of all layers' writes and reads take turns inside the forward pass: they share its width. */
function sideBySide(items) {
  const sums = items.filter((item) => item.e.calls != null);
  if (sums.length < 2) return items;
  const x0 = Math.min(...sums.map((item) => item.x0));
  const width = (Math.max(...sums.map((item) => item.x1)) - x0) / sums.length;
  sums.forEach((item, i) => Object.assign(item, { x0: x0 + i * width, x1: x0 + (i + 1) * width - 1 }));
  return items;
}
/** It holds events of later steps too: its end is not in this picture. */
function stays(e, group) {
  return e.children.some((child) => child.group !== group) || (["generate", "chat", "run_engine"].includes(e.kind) && e.t1 > group.t1 && group.index < lastGroupOf(e));
}
const lastGroups = new Map();
function lastGroupOf(e) {
  if (!lastGroups.has(e)) lastGroups.set(e, e.children.reduce((last, child) => Math.max(last, child.group.index, lastGroupOf(child)), 0));
  return lastGroups.get(e);
}

/** True time: linear from the first entry to the last exit of the step. */
export function timeLayout(group, width) {
  const t0 = group.t0;
  const span = Math.max(1, group.t1 - t0);
  const inside = new Set(group.events);
  const items = [...group.open, ...group.events].map((e) => ({
    e,
    x0: Math.max(0, ((e.t0 - t0) / span) * width),
    x1: Math.max(0, Math.min(width, ((e.t1 - t0) / span) * width)),
    lane: laneOf(e),
    row: rowOf(e),
    open: !inside.has(e),
    level: 0,
  }));
  const sums = items.filter((item) => item.e.calls != null);
  for (let i = 0; i + 1 < sums.length; i++) sums[i].draw1 = sums[i + 1].x0; // they take turns in the same row
  return items;
}
