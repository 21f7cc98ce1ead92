// What an event changed, as numbers before and after; and its own fields where it changed no counter.
// Must not know: how they are drawn.

import { config, count, params, pool, ranges, requestIds } from "data.js";

const CHANGES = [
  // field, words, limit
  ["token_budget", "budget left", (e) => e.token_budget[0]],
  ["num_blocks", "blocks held", (e) => Math.max(...e.num_blocks), true],
  ["num_cached_blocks", "blocks with a hash", (e) => Math.max(...e.num_cached_blocks), true],
  ["num_free_blocks", "free blocks", () => pool - 1],
  ["num_running", "running", () => config.max_num_seqs],
  ["num_waiting", "waiting", () => requestIds.length],
  ["num_chars", "text, characters", (e) => Math.max(...e.num_chars), true],
  ["num_output_tokens", "output tokens", (e) => params[e.reqs[0]]?.maxTokens, true],
  ["num_open", "open requests", () => requestIds.length],
];

/** [{label, request, before, after, limit, loss}] */
export function changesOf(e, followed, before, after) {
  const own = e.reqs.length === 1 ? e.reqs[0] : null;
  const rows = [];
  const id = own || (e.reqs.includes(followed) ? followed : null);
  const forced = e.kind === "free" && e.up?.kind === "schedule";
  if (e.kind === "schedule" && id && e.num_computed_tokens?.[id]) {
    const [was, is] = e.num_computed_tokens[id];
    rows.push({ label: "computed tokens", request: id, before: was, after: is, limit: e.num_tokens[id], loss: is < was });
    const blocks = e.num_blocks[id];
    rows.push({ label: "blocks held", request: id, before: blocks[0], after: blocks[1], limit: Math.max(...blocks) });
  } else if (e.kind === "update_from_output" && id) {
    const u = (e.updates || []).find((update) => update.req_id === id);
    if (u) {
      const start = params[id]?.numPrompt ?? 0;
      const limit = start + (params[id]?.maxTokens ?? u.num_tokens[1] - start);
      rows.push({ label: "tokens", request: id, before: u.num_tokens[0], after: u.num_tokens[1], limit });
      rows.push({ label: "blocks held", request: id, before: u.num_blocks[0], after: u.num_blocks[1], limit: Math.max(...u.num_blocks) });
    }
  } else if (id && ["allocate_slots", "free", "get_computed_blocks"].includes(e.kind)) {
    const was = before.requests.get(id);
    const is = after.requests.get(id);
    if (was && is && e.kind !== "get_computed_blocks")
      rows.push({
        label: "computed tokens",
        request: id,
        before: was.num_computed_tokens,
        after: is.num_computed_tokens,
        limit: is.num_tokens,
      });
  }
  for (const [field, label, limit, isOwn] of CHANGES) {
    if (!Array.isArray(e[field]) || e[field].length !== 2 || typeof e[field][0] !== "number") continue;
    const [was, is] = e[field];
    rows.push({
      label,
      request: isOwn ? id : null,
      before: was,
      after: is,
      limit: limit(e),
      loss: isOwn && is < was && (forced || field === "num_chars"),
    });
  }
  return rows;
}

const COMMON = "kind seq proc t0 t1 parent thread step reqs error view_error children up group".split(" ");

/** [name, value as text, size] of the event's own fields, those that changesOf shows left out. */
export function fieldsOf(e, all = false) {
  const shown = new Set(all ? [] : CHANGES.map(([field]) => field));
  return Object.entries(e)
    .filter(([name]) => !COMMON.includes(name) && !shown.has(name))
    .map(([name, value]) => (isChange(name, value) ? [name, `${count(value[0])} → ${count(value[1])}`, ""] : [name, valueText(value), Array.isArray(value) ? `[${value.length}]` : ""]));
}

const isChange = (name, value) => CHANGES.some(([field]) => field === name) && Array.isArray(value) && value.length === 2 && value.every(Number.isInteger);

/** A value as one readable text; lists of whole numbers as runs. */
export function valueText(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return Number.isInteger(value) ? count(value) : String(value);
  if (typeof value === "string") return `“${value}”`;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) {
    if (value.every((item) => Number.isInteger(item))) return value.length > 8 && isRising(value) ? ranges(value) : value.join(" ");
    return value.map(valueText).join(", ");
  }
  return Object.entries(value)
    .map(([name, item]) => `${name} ${Array.isArray(item) && item.length === 2 && typeof item[0] === "number" ? item.join(" → ") : valueText(item)}`)
    .join(" · ");
}
const isRising = (numbers) => numbers.filter((n, i) => i && n === numbers[i - 1] + 1).length > numbers.length / 2;
