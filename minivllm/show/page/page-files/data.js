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
const answers = new Map();
for (const id of requestIds) {
  const outer = data.requests[id];
  answers.set(outer, [...(answers.get(outer) || []), id]);
}
/** What a request is called on the page: the caller's number; 0.1 is the second of several answers to prompt 0. */
export function nameOf(id) {
  const outer = data.requests[id];
  if (outer === undefined) return id;
  const all = answers.get(outer);
  return all.length === 1 ? outer : `${outer}.${all.indexOf(id)}`;
}
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
export const visible = (text) => text.replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/^ /, "·").replace(/ $/, "·");

// ------------------------------------------------------------------ groups: one for each step

export const groups = []; // {step, events: [places], open: [events that began before], info}
{
  const firstStep = events.find((e) => e.step != null);
  let latest = firstStep ? firstStep.step : 0;
  const seen = new Map();
  const own = events.map((e) => e.step ?? null);
  let next = null; // an event between steps belongs to the step that follows; at the end to the last one
  const steps = new Array(events.length);
  for (let place = events.length - 1; place >= 0; place--) {
    if (own[place] != null && events[place].kind === "step") next = own[place];
    steps[place] = own[place] ?? next;
  }
  const lasting = ["generate", "chat", "run_engine"]; // they hold many steps; all else stays with what holds it
  for (let place = 0; place < events.length; place++) {
    const { up } = events[place];
    if (own[place] == null && lasting.includes(events[place].kind)) {
      const inside = events[place].children.filter((child) => child.step != null).map((child) => child.step);
      if (inside.length) steps[place] = Math.min(steps[place] ?? Infinity, inside[0]); // its first child is of the earliest step
    } else if (own[place] == null && up?.group && !lasting.includes(up.kind)) steps[place] = up.group.step;
    const step = steps[place] ?? latest;
    latest = Math.max(latest, step);
    if (!seen.has(step)) {
      seen.set(step, { step, places: [] });
      groups.push(seen.get(step));
    }
    seen.get(step).places.push(place);
    events[place].group = seen.get(step);
  }
  groups.sort((a, b) => a.step - b.step);
  groups.forEach((group, i) => {
    group.index = i;
    group.events = group.places.map((place) => events[place]);
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

export const roles = new Map(requestIds.map((id) => [id, new Map()])); // id -> group index -> role
{
  const arrived = new Map();
  const ended = new Map();
  const lost = new Set();
  for (const group of groups) {
    for (const e of group.events) if (e.kind === "scheduler.add_request") arrived.set(e.reqs[0], e);
    const plan = group.plan;
    const put = (id, role) => roles.get(id)?.set(group.index, { ...roles.get(id).get(group.index), ...role });
    if (plan) {
      for (const p of plan.preemptions || []) {
        put(p.req_id, { kind: "preempted", preemption: p });
        lost.add(p.req_id);
      }
      for (const s of plan.skipped || []) {
        if (roles.get(s.req_id)?.get(group.index)?.kind === "preempted") continue;
        put(s.req_id, { kind: "waits", skipped: s });
      }
      const hits = new Map();
      for (const r of plan.scheduled_new_reqs || []) hits.set(r.req_id, r.num_computed_tokens);
      for (const r of plan.scheduled_cached_reqs || []) if (r.resumed) hits.set(r.req_id, r.num_computed_tokens);
      for (const [id, n] of Object.entries(plan.num_scheduled_tokens || {})) {
        const after = plan.num_computed_tokens[id][1];
        const known = plan.num_tokens[id];
        const prompt = params[id]?.numPrompt ?? known;
        const decode = n === 1 && after - n >= prompt && !hits.has(id);
        put(id, { kind: decode ? "decode" : "prefill", n, after, known, chunk: after < known, hits: hits.get(id) || 0 });
        put(id, { resumed: hits.has(id) && lost.has(id) });
      }
      for (const id of plan.waiting || []) if (!roles.get(id)?.has(group.index)) put(id, { kind: "waits" });
    }
    for (const e of group.events) {
      if (e.kind === "update_from_output")
        for (const u of e.updates || [])
          if (u.finish_reason) {
            put(u.req_id, { finished: u.finish_reason });
            ended.set(u.req_id, e);
          }
      if (e.kind === "finish_requests")
        for (const id of e.finished || []) {
          put(id, { finished: e.status.replace("FINISHED_", "").toLowerCase() });
          ended.set(id, e);
        }
    }
  }
}
export const REASONS = {
  token_budget: "budget",
  seats: "seats",
  blocks: "blocks",
  not_fit_in_budget: "does not fit",
  preemption: "after a preemption",
  head_of_line: "behind",
  preempted: "preempted",
};

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
