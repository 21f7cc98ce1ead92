// The trace, indexed: events, tree, requests, groups (what the strip shows as one step), what each step did with whom.
// Must not know: how anything is drawn.

export const data = JSON.parse(document.getElementById("data").textContent);
export const events = data.events;
export const header = data.header;
export const config = header.config || {};
export const pool = header.num_gpu_blocks || 0; // the null block included
export const blockSize = config.block_size || 16;
export const isLogical = header.clock === "logical";
export const hasProcesses = events.some((e) => e.proc === "core");

export const placeOf = new Map(events.map((e, place) => [e.seq, place]));
export const bySeq = (seq) => events[placeOf.get(seq)];

for (const e of events) {
  e.reqs = e.reqs || [];
  e.children = [];
}
for (const e of events) {
  e.up = e.parent == null ? null : bySeq(e.parent) || null;
  if (e.up) e.up.children.push(e);
}

// ------------------------------------------------------------------ requests

export const requestIds = Object.keys(data.requests);
export const requestIndex = new Map(requestIds.map((id, i) => [id, i]));
/** What a request is called on the page. */
export const nameOf = (id) => data.names[id] ?? id;
export const params = {}; // request -> {prompt, promptIds, numPrompt, maxTokens}
{
  for (const e of events) {
    if (e.kind === "render_cmpl" || e.kind === "render_chat")
      for (const id of e.reqs)
        params[id] = {
          ...params[id],
          prompt: e.prompt,
          promptIds: Array.isArray(e.prompt_token_ids) ? e.prompt_token_ids : [],
          numPrompt: e.num_prompt_tokens,
        };
    if (e.kind === "scheduler.add_request" && e.reqs.length)
      params[e.reqs[0]] = { ...params[e.reqs[0]], numPrompt: e.num_prompt_tokens, maxTokens: e.max_tokens };
  }
}
/** The text of a token, with its white space made visible; null where nobody knows it. */
export function piece(id) {
  const text = data.pieces[id];
  return text === undefined ? null : visible(text);
}
// controls, marks of direction, separators of lines, half pairs, tags: what minivllm/printable.py takes for unseen
const UNSEEN = /(?![\n\t])[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}\p{Cs}\u{e0000}-\u{e007f}]/gu;
/** A text whose every character is seen: others' texts may hold orders, or turn the direction of what follows. */
export const printable = (text) => text.replace(UNSEEN, (letter) => `⟨U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
export const visible = (text) => printable(text).replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/^ /, "·").replace(/ $/, "·");

// ------------------------------------------------------------------ groups: one for each step

export const groups = []; // {step, index, events, open: [events that began before], plan, update, batch, total, t0, t1}
{
  const ofStep = new Map();
  events.forEach((e, place) => {
    const step = data.steps[place];
    if (!ofStep.has(step)) {
      ofStep.set(step, { step, events: [] });
      groups.push(ofStep.get(step));
    }
    e.group = ofStep.get(step);
    e.group.events.push(e);
  });
  groups.sort((a, b) => a.step - b.step);
  groups.forEach((group, i) => {
    group.index = i;
    const open = new Set();
    for (const e of group.events) for (let up = e.up; up; up = up.up) if (up.group !== group) open.add(up);
    group.open = [...open].sort((a, b) => a.seq - b.seq);
    group.plan = group.events.find((e) => e.kind === "schedule" && !e.error && !e.view_error) || null;
    group.update = group.events.find((e) => e.kind === "update_from_output" && !e.error) || null;
    group.batch = group.events.find((e) => e.kind === "prepare_inputs" && !e.error) || null;
    group.total = group.plan ? group.plan.total_num_scheduled_tokens || 0 : 0;
    // tokens are what the strip shows; t0 and t1 are of the step's own events, without those that stay open
    const times = group.events.filter((e) => !["generate", "chat", "run_engine", "get_output"].includes(e.kind));
    const all = times.length ? times : group.events;
    group.t0 = Math.min(...all.map((e) => e.t0));
    group.t1 = Math.max(...all.map((e) => e.t1));
  });
}
export const maxTotal = Math.max(1, ...groups.map((group) => group.total));
export const stepName = (group) => (group.step ? `step ${group.step}` : "no step");

// ------------------------------------------------------------------ what each step did with each request

// id -> group index -> {kind, n, after, known, hits, resumed, waits: [in a word, with numbers, in full], finished}
export const roles = new Map(requestIds.map((id) => [id, new Map()]));
{
  const indexOf = new Map(groups.map((group) => [group.step, group.index]));
  for (const id of requestIds) for (const [step, role] of data.roles[id]) roles.get(id).set(indexOf.get(step), { ...role, waits: data.waits[role.waits] });
}
export const isChunk = (role) => role.after < role.known;

// ------------------------------------------------------------------ words

export const count = (n) => (n == null ? "?" : n.toLocaleString("en-US"));
export const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;
export function listed(items) {
  const words = items.map(String);
  if (words.length > 8) words.splice(7, words.length - 7, `${words.length - 7} more`);
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}`;
}
/** 16–31, 48: runs of numbers. */
export function ranges(numbers, limit = 1e9) {
  const runs = [];
  for (const n of numbers) {
    const last = runs[runs.length - 1];
    if (last && n === last[1] + 1) last[1] = n;
    else runs.push([n, n]);
  }
  const words = runs.map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`));
  return words.length > limit ? `${words.slice(0, limit).join(", ")} …` : words.join(", ");
}
export function time(ns) {
  if (ns < 1e3) return `${ns} ns`;
  if (ns < 1e6) return `${(ns / 1e3).toFixed(1)} µs`;
  if (ns < 1e9) return `${(ns / 1e6).toFixed(1)} ms`;
  return `${(ns / 1e9).toFixed(3)} s`;
}
