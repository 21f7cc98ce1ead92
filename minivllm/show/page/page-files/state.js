// The engine's state at any event: what each effect changed, put together (minivllm/show/page/deltas.py says in what form).
// Must not know: what an event does to the state, or how anything is drawn.

import { data, placeOf } from "data.js";

const { changes, moments } = data.state;
const [entries, exits] = moments;

const newState = () => ({
  count: 0, // effects so far
  step: 0,
  requests: new Map(), // id -> {status, num_prompt_tokens, num_tokens, num_computed_tokens, …}
  waiting: [],
  running: [],
  free: new Map(), // its keys, in the order in which blocks are handed out
  refs: new Map(),
  hashes: new Map(),
  tables: new Map(),
  cached: new Map(),
  last: new Map(), // block -> [request, place in its table] that held it last
  rows: [],
});

const copyState = (state) => Object.fromEntries(Object.entries(state).map(([name, value]) => [name, value instanceof Map ? new Map(value) : value]));

/** A value with a change made. Maps are changed in place, all else is made anew. */
function changed(old, change) {
  if (old instanceof Map) {
    for (const key of change[0]) old.delete(key);
    for (let i = 1; i < change.length; i += 2) old.set(change[i], changed(old.get(change[i]), change[i + 1]));
    return old;
  }
  if (typeof old === "string" && Array.isArray(change)) return changed([...old], [change[0], change[1], ...change[2]]).join(""); // by code point
  if (old === null || typeof old !== "object") return change;
  if (Array.isArray(change)) return old.toSpliced(...change);
  const next = Array.isArray(old) ? old.slice() : { ...old };
  for (const [name, one] of Object.entries(change)) next[name] = changed(old[name], one);
  return next;
}

const KEY_FRAME = Math.max(100, Math.ceil(changes.length / 128));
const frames = new Map([[0, Object.assign(newState(), changed(newState(), changes[0]))]]);
const recent = new Map(); // the last 64 asked for

/** The engine after all effects up to the exit of an event, or, with before, up to its entry. Not to be changed. */
export function stateAt(event, before = false) {
  const wanted = (before ? entries : exits)[placeOf.get(event.seq)];
  if (recent.has(wanted)) return recent.get(wanted);
  let start = Math.floor(wanted / KEY_FRAME) * KEY_FRAME;
  while (!frames.has(start)) start -= KEY_FRAME;
  let state = copyState(frames.get(start));
  for (let done = start + 1; done <= wanted; done++) {
    state = changed(state, changes[done] ?? {});
    if (done % KEY_FRAME === 0 && !frames.has(done)) frames.set(done, copyState(state));
  }
  state.count = wanted;
  recent.set(wanted, state);
  if (recent.size > 64) recent.delete(recent.keys().next().value);
  return state;
}

/** block -> requests that hold it */
export function ownersOfAll(state) {
  const found = new Map();
  for (const [id, blocks] of state.tables)
    for (const block of blocks) found.set(block, [...(found.get(block) || []), id]);
  return found;
}
