// Schedule: requests × steps, the budget of the step, the queues.
// Must not know: blocks.

import { config, count, groups, isChunk, nameOf, params, plural, requestIds, roles } from "data.js";
import { H, S, T, chip, colour, cross, fillOf, idleFill, mark, textWidth, title } from "marks.js";

const LABELS = 112;
const ROW = 30;

export function drawSchedule(host, { group, followed, after, go }) {
  const width = Math.max(600, host.clientWidth - 32);
  const free = width - LABELS;
  const column = Math.max(26, Math.min(51, free / groups.length));
  const visible = Math.max(1, Math.floor(free / column));
  const first = Math.max(0, Math.min(groups.length - visible, group.index - Math.floor(visible / 2)));
  const shown = groups.slice(first, first + visible);
  const rows = rowsAround(followed, shown);
  const top = 70;
  const svg = S("svg", { width, height: top + rows.length * ROW + 6, role: "group", "aria-label": "requests by steps" });
  svg.append(...bars(shown, column, width, group));
  rows.forEach((id, i) => svg.append(...requestRow(id, i, top, shown, column, width, group, followed, go)));
  const x = LABELS + (group.index - first) * column;
  svg.append(S("rect", { x, y: 3, width: column, height: top + rows.length * ROW - 1, rx: 3, class: "here-box" }));
  if (rows.length < requestIds.length) svg.append(T(0, 50, `${rows.length} of ${plural(requestIds.length, "request")}`, { class: "third" }));
  host.append(H("div", { class: "heat" }, svg), budgetBar(group, width), queuesOf(after), legendOf());
}

/** The requests that do something in the steps shown; the followed one is always among them. */
function rowsAround(followed, shown) {
  const busy = requestIds.filter((id) => id === followed || shown.some((group) => roles.get(id).has(group.index)));
  if (busy.length <= 6) return busy;
  const first = Math.max(0, Math.min(busy.length - 6, busy.indexOf(followed) - 3));
  return busy.slice(first, first + 6);
}

function bars(shown, column, width, here) {
  const budget = config.max_num_batched_tokens || 0;
  const most = Math.max(1, ...shown.map((group) => group.total));
  const limit = budget && budget <= 2 * most ? budget : 0;
  const scale = 34 / Math.max(most, limit);
  const parts = [T(0, 20, "tokens", { class: "strong" }), T(0, 35, "per step", { class: "third" }), T(LABELS - 8, 64, "prompt + out", { class: "third", "text-anchor": "end" })];
  if (limit) parts.push(S("line", { x1: LABELS, x2: width, y1: 41 - limit * scale, y2: 41 - limit * scale, class: "limit-line" }));
  const every = Math.ceil(30 / column);
  shown.forEach((group, i) => {
    const x = LABELS + i * column;
    let y = 41;
    for (const [id, n] of Object.entries(group.plan?.num_scheduled_tokens || {})) {
      parts.push(S("rect", { x: x + column * 0.22, y: y - n * scale, width: column * 0.56, height: n * scale, fill: fillOf(id) }));
      y -= n * scale;
    }
    const strong = group === here ? "strong" : "third";
    parts.push(T(x + column / 2, 53, group.plan ? count(group.total) : "", { class: group === here ? "strong" : "", "text-anchor": "middle" }));
    if (i % every === 0 || group === here) parts.push(T(x + column / 2, 66, i === 0 && column > 44 ? `step ${group.step}` : group.step, { class: strong, "text-anchor": "middle" }));
  });
  return parts;
}

function requestRow(id, i, top, shown, column, width, here, followed, go) {
  const y = top + i * ROW;
  const middle = y + ROW / 2;
  const output = outputs.get(id) ?? 0;
  const parts = [];
  if (i % 2 === 0) parts.push(S("rect", { x: 0, y, width, height: ROW, fill: "var(--band)" }));
  const words = `${params[id]?.numPrompt ?? "?"} + ${output}`;
  parts.push(mark(id, y + 5), T(34, y + 19.5, words, { class: id === followed ? "strong" : "third" }));
  const waits = [];
  shown.forEach((group, c) => {
    const role = roles.get(id).get(group.index);
    if (!role) return;
    const x = LABELS + c * column;
    const g = S("g", { class: "heat-cell", style: colour(id), "data-request": id, "data-step": group.step, "data-kind": role.kind, "data-tokens": role.n ?? 0, onclick: () => go((group.plan || group.events[0]).seq) });
    if (role.kind === "prefill") g.append(...prefill(role, x, y, column, id, group === here && id === followed));
    else if (role.kind === "decode") g.append(S("circle", { cx: x + column / 2, cy: middle, r: Math.min(6.5, column / 2 - 2), class: "mark" }));
    else if (role.kind === "preempted") g.append(cross(x + column / 2, middle, 5));
    else if (role.kind === "waits") {
      const [word, label, why] = role.waits ?? ["waits", "waits", ""];
      const last = waits[waits.length - 1];
      if (last && last.word === word && last.to === c - 1) Object.assign(last, { to: c, label: last.why === why ? last.label : `waits: ${word}` });
      else waits.push({ word, label, why, from: c, to: c });
    }
    if (role.finished) g.append(S("rect", { x: x + column / 2 + (role.kind === "prefill" ? column / 2 - 6 : 12), y: y + 6, width: 3.5, height: ROW - 12, fill: "var(--ink)" }, title(`finished: ${role.finished}`)));
    g.append(title(sayRole(id, role, group)));
    parts.push(g);
  });
  for (const wait of waits) parts.push(...waitLine(wait, middle, column));
  return parts;
}

const outputs = new Map(); // request -> output tokens in the end
for (const group of groups) for (const u of group.update?.updates || []) outputs.set(u.req_id, u.num_tokens[1] - (params[u.req_id]?.numPrompt ?? 0));

function prefill(role, x, y, column, id, here) {
  const w = column - 4;
  const left = x + 2;
  const torn = isChunk(role) ? Math.min(6, w / 4) : 0;
  const top = y + 3;
  const bottom = y + ROW - 3;
  const middle = (top + bottom) / 2;
  const d = isChunk(role) ? `M${left},${top}H${left + w}L${left + w - torn},${top + 6}L${left + w},${middle}L${left + w - torn},${bottom - 6}L${left + w},${bottom}H${left}Z` : `M${left},${top}H${left + w}V${bottom}H${left}Z`;
  const parts = [S("path", { d, class: `mark${here ? " here" : ""}` })];
  if (role.hits) {
    const part = Math.max(3, Math.min(w * 0.3, (w * role.hits) / role.after));
    parts.push(S("rect", { x: left, y: top, width: part, height: bottom - top, fill: idleFill(id), class: "hit-part" }));
  }
  if (textWidth(String(role.n), 13, 700) < w - torn - (role.hits ? w * 0.3 : 0)) parts.push(T(left + (w - torn + (role.hits ? w * 0.3 : 0)) / 2, middle + 5, role.n, { class: "mark-text big", "text-anchor": "middle" }));
  return parts;
}

function waitLine({ word, label, why, from, to }, middle, column) {
  const x0 = LABELS + from * column + 2;
  const x1 = LABELS + (to + 1) * column - 2;
  const parts = [S("path", { d: `M${x0},${middle - 4}v8M${x0},${middle}H${x1}`, class: "wait-line" }, why ? title(why) : null)];
  for (const text of [label, word]) {
    const w = textWidth(text, 12, 500);
    if (w + 10 > x1 - x0) continue;
    const center = (x0 + x1) / 2;
    parts.push(S("rect", { x: center - w / 2 - 4, y: middle - 8, width: w + 8, height: 16, class: "plate wait" }), T(center, middle + 4, text, { class: "second-text", "text-anchor": "middle" }));
    break;
  }
  return parts;
}

function sayRole(id, role, group) {
  const name = `request ${nameOf(id)}, step ${group.step}: `;
  if (role.kind === "prefill") return `${name}prefill of ${plural(role.n, "token")}${role.hits ? `, ${role.hits} from the cache` : ""}${isChunk(role) ? `, ${role.known - role.after} more to come` : ""}`;
  if (role.kind === "decode") return `${name}decode, 1 token`;
  if (role.kind === "preempted") return `${name}preempted`;
  return `${name}${role.waits?.[2] ?? "waits"}`;
}

function budgetBar(group, width) {
  const plan = group.plan;
  if (!plan) return H("p", { class: "empty" }, "No plan here: nothing is scheduled between steps.");
  const [budget, left] = plan.token_budget;
  const full = width - LABELS - 110;
  const tokens = Object.entries(plan.num_scheduled_tokens || {});
  // linear from 0; a large budget that is hardly used is cut at twice the tokens, and says so
  const used = budget - left;
  const top = used * 4 < budget ? Math.max(16, used * 2) : budget;
  const scale = full / top;
  const svg = S("svg", { width, height: 44, role: "img", "aria-label": `${used} of ${budget} tokens` });
  svg.append(T(0, 20, `step ${group.step}`, { class: "strong" }));
  let x = LABELS;
  const seen = [];
  for (const [id, n] of tokens) {
    const part = S("g", { style: colour(id), "data-request": id }, S("rect", { x, y: 4, width: Math.max(1, n * scale), height: 22, class: "mark" }));
    svg.append(part);
    const role = roles.get(id)?.get(group.index);
    const text = `${n}${role && isChunk(role) ? ` of its ${role.known - role.after + n} tokens` : ""}`;
    if (textWidth(text, 12, 700) + 6 < n * scale) part.append(T(x + (n * scale) / 2, 19.5, text, { class: "mark-text", "text-anchor": "middle" }));
    else seen.push(`${n} of request ${nameOf(id)}`);
    x += n * scale;
  }
  if (left > 0) svg.append(S("rect", { x, y: 4, width: LABELS + full - x, height: 22, class: "free-bar" }));
  if (top === budget) svg.append(S("line", { x1: LABELS + full, x2: LABELS + full, y1: 0, y2: 30, class: "limit-bar" }));
  svg.append(T(LABELS + full + 8, 14, `${count(used)} of ${count(budget)}`, { class: "strong" }), T(LABELS + full + 8, 28, top === budget ? "budget" : `bar cut at ${count(Math.round(top))}`, { class: "third" }));
  if (seen.length && seen.length <= 6) svg.append(T(LABELS, 40, `narrow ones: ${seen.join(", ")}`, { class: "third" }));
  return svg;
}

function queuesOf(state) {
  const list = (ids, empty) => (ids.length ? [...ids.slice(0, 14).map((id) => chip(id)), ids.length > 14 ? H("span", { class: "third" }, ` and ${ids.length - 14} more`) : ""] : H("span", { class: "third" }, empty));
  return H(
    "div",
    { class: "sched-queues" },
    H("b", {}, "queues"),
    H("span", { class: "third" }, "running, oldest first"),
    H("span", { class: "chips", "data-queue": "running", "data-ids": state.running.join(" ") }, list(state.running, "nobody")),
    H("span", { class: "third" }, "waiting, next first"),
    H("span", { class: "chips", "data-queue": "waiting", "data-ids": state.waiting.join(" ") }, list(state.waiting, "nobody")),
    H("span", { class: "third" }, `seats ${state.running.length} of ${config.max_num_seqs ?? "?"}`),
  );
}

function legendOf() {
  const item = (mark, words) => H("span", { class: "legend-item" }, mark, words);
  const svg = (...parts) => S("svg", { width: 20, height: 14, style: "--fill:var(--batch);--edge:var(--slice)", "aria-hidden": "true" }, parts);
  return H(
    "div",
    { class: "legend" },
    item(svg(S("rect", { x: 1, y: 1, width: 17, height: 12, class: "mark" })), "prefill, tokens"),
    item(svg(S("path", { d: "M1,1H18l-4,3l4,3l-4,3l4,3H1Z", class: "mark" })), "chunk, more to come"),
    item(svg(S("circle", { cx: 10, cy: 7, r: 5.5, class: "mark" })), "decode, 1 token"),
    item(svg(S("path", { d: "M1,7H19", class: "wait-line" })), "waits"),
    item(svg(S("rect", { x: 8, y: 1, width: 3.5, height: 12, fill: "var(--ink)" })), "finished"),
    item(svg(cross(10, 7, 4)), "preempted"),
  );
}
