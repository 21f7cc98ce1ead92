// The engine's state at any event, replayed: the same rules, in the same order, as minivllm/trace/state.py.
// Must not know: how anything is drawn.

import { events, pool } from "data.js";

export function newState() {
  const free = new Map();
  for (let block = 1; block < pool; block++) free.set(block, null);
  return {
    count: 0, // effects so far
    step: 0,
    requests: new Map(), // id -> {status, num_prompt_tokens, num_tokens, num_computed_tokens, …}
    waiting: [],
    running: [],
    free, // in the order in which blocks are handed out
    refs: new Map(),
    hashes: new Map(),
    tables: new Map(),
    cached: new Map(),
    last: new Map(), // block -> [request, place in its table] that held it last
    rows: [],
  };
}

function copyState(s) {
  return {
    count: s.count,
    step: s.step,
    requests: new Map([...s.requests].map(([id, r]) => [id, { ...r }])),
    waiting: s.waiting,
    running: s.running,
    free: new Map(s.free),
    refs: new Map(s.refs),
    hashes: new Map(s.hashes),
    tables: new Map([...s.tables].map(([id, blocks]) => [id, blocks.slice()])),
    cached: new Map(s.cached),
    last: new Map(s.last),
    rows: s.rows,
  };
}

function request(s, id) {
  let r = s.requests.get(id);
  if (!r) {
    r = {
      status: "NEW",
      num_prompt_tokens: 0,
      num_tokens: 0,
      num_computed_tokens: 0,
      num_preemptions: 0,
      priority: 0,
      output: [],
      text: "",
      open: false,
    };
    s.requests.set(id, r);
  }
  return r;
}

const without = (ids, id) => ids.filter((other) => other !== id);
const finished = (r) => r.status.startsWith("FINISHED");

const RULES = {
  "output_processor.add_request": (s, e) => (request(s, e.reqs[0]).open = true),
  detokenize: (s, e) => {
    const r = request(s, e.reqs[0]);
    const added = e.new_text ?? null;
    // characters are counted as Python does, by code point
    if (typeof added === "string") r.text = [...(r.text + added)].slice(0, e.num_chars[1]).join("");
  },
  process_outputs: (s, e) => {
    for (const id of Object.keys(e.finished || {})) request(s, id).open = false;
  },
  abort_requests: (s, e) => {
    for (const id of e.reqs) if (s.requests.has(id)) s.requests.get(id).open = false;
  },
  preprocess_add_request: (s, e) => {
    const r = request(s, e.reqs[0]);
    r.num_prompt_tokens = r.num_tokens = e.num_prompt_tokens;
  },
  "scheduler.add_request": (s, e) => {
    const r = request(s, e.reqs[0]);
    r.status = "WAITING";
    r.num_prompt_tokens = e.num_prompt_tokens;
    r.num_tokens = e.num_tokens;
    r.priority = e.priority;
    s.waiting = s.waiting.slice();
    s.waiting.splice(e.queue_position, 0, e.reqs[0]);
  },
  schedule: (s, e) => {
    s.step = e.step;
    s.waiting = (e.waiting || []).slice();
    s.running = (e.running || []).slice();
    for (const [id, change] of Object.entries(e.num_computed_tokens || {}))
      request(s, id).num_computed_tokens = change[1];
    for (const id of Object.keys(e.num_scheduled_tokens || {})) request(s, id).status = "RUNNING";
    for (const p of e.preemptions || []) {
      request(s, p.req_id).status = "PREEMPTED";
      request(s, p.req_id).num_preemptions += 1;
    }
  },
  update_from_output: (s, e) => {
    for (const u of e.updates || []) {
      const r = request(s, u.req_id);
      r.status = u.status;
      r.num_tokens = u.num_tokens[1];
      r.num_computed_tokens = u.num_computed_tokens;
      if (Array.isArray(u.new_token_ids)) r.output = r.output.concat(u.new_token_ids);
      if (finished(r)) s.running = without(s.running, u.req_id);
    }
  },
  finish_requests: (s, e) => {
    for (const id of e.finished || []) {
      request(s, id).status = e.status;
      s.waiting = without(s.waiting, id);
      s.running = without(s.running, id);
    }
  },
  allocate_slots: (s, e) => {
    if (e.refused) return;
    const table = s.tables.get(e.reqs[0]) || [];
    const longer = [...table, ...(e.hit_block_ids || []), ...(e.new_block_ids || [])];
    longer.forEach((block, place) => s.last.set(block, [e.reqs[0], place]));
    s.tables.set(e.reqs[0], longer);
  },
  cache_blocks: (s, e) => s.cached.set(e.reqs[0], e.num_cached_blocks[1]),
  forget_uncomputed_blocks: (s, e) => forget(s, e.block_ids || []),
  free: (s, e) => {
    s.tables.delete(e.reqs[0]);
    s.cached.delete(e.reqs[0]);
  },
  get_new_blocks: (s, e) => {
    for (const block of e.block_ids || []) {
      s.free.delete(block);
      s.refs.set(block, 1);
    }
    forget(s, e.evicted_block_ids || []);
  },
  touch: (s, e) => {
    (e.block_ids || []).forEach((block, i) => {
      s.free.delete(block);
      s.refs.set(block, e.ref_cnts[i]);
    });
  },
  free_blocks: (s, e) => {
    (e.block_ids || []).forEach((block, i) => {
      if (e.ref_cnts[i] > 0) s.refs.set(block, e.ref_cnts[i]);
      else {
        s.refs.delete(block);
        s.free.set(block, null);
      }
    });
  },
  cache_full_blocks: (s, e) => (e.block_ids || []).forEach((block, i) => s.hashes.set(block, e.block_hashes[i])),
  reset_prefix_cache: (s, e) => {
    if (e.done) s.hashes = new Map();
  },
  update_states: (s, e) => {
    const tables = new Map(s.rows.map((row) => [row.req_id, row.block_ids]));
    for (const [id, blocks] of Object.entries(e.block_tables || {})) tables.set(id, blocks);
    s.rows = (e.req_ids || []).map((id, i) => ({
      req_id: id,
      num_computed_tokens: e.num_computed_tokens[i],
      block_ids: tables.get(id) || [],
    }));
  },
};
RULES["core_client.send"] = RULES["core.send"] = RULES["core.receive"] = RULES["core_client.receive"] = () => {};

function forget(s, blocks) {
  for (const block of blocks) s.hashes.delete(block);
}

// A message is on its way as soon as it is being sent; all else takes effect when the call returns.
const SENT = ["core_client.send", "core.send"];
const effectTime = (e) => (SENT.includes(e.kind) ? e.t0 + 1 : e.t1);
const effects = events.filter((e) => e.kind in RULES);
const order = effects.map((_, i) => i).sort((a, b) => effectTime(effects[a]) - effectTime(effects[b]) || a - b);
const sorted = order.map((i) => effects[i]);
const times = sorted.map(effectTime);

const KEY_FRAME = Math.max(100, Math.ceil(sorted.length / 128));
const frames = new Map([[0, newState()]]);
const recent = new Map(); // the last 64 asked for

function countUntil(t) {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= t) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The engine after all effects up to the exit of an event, or, with before, up to its entry. Not to be changed. */
export function stateAt(event, before = false) {
  const wanted = countUntil(before ? event.t0 : event.t1);
  if (recent.has(wanted)) return recent.get(wanted);
  let start = Math.floor(wanted / KEY_FRAME) * KEY_FRAME;
  while (!frames.has(start)) start -= KEY_FRAME;
  const state = copyState(frames.get(start));
  state.count = wanted;
  for (let i = start; i < wanted; i++) {
    const e = sorted[i];
    if (!e.error && !e.view_error) RULES[e.kind](state, e);
    if ((i + 1) % KEY_FRAME === 0 && !frames.has(i + 1)) frames.set(i + 1, copyState(state));
  }
  recent.set(wanted, state);
  if (recent.size > 64) recent.delete(recent.keys().next().value);
  return state;
}

export function owners(state, block) {
  const found = [];
  for (const [id, blocks] of state.tables) if (blocks.includes(block)) found.push(id);
  return found;
}
/** block -> requests that hold it */
export function ownersOfAll(state) {
  const found = new Map();
  for (const [id, blocks] of state.tables)
    for (const block of blocks) found.set(block, [...(found.get(block) || []), id]);
  return found;
}
