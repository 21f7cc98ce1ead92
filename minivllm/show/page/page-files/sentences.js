// One plain sentence for an event, with its numbers; the key word is marked.
// Must not know: how it is drawn.

import { blockSize, count, data, hasProcesses, listed, nameOf, params, piece, plural, pool, ranges, roles, visible } from "data.js";
import { owners } from "state.js";

const key = (text, loss = false) => ({ key: text, loss });
const named = (ids) => `request${ids.length === 1 ? "" : "s"} ${listed(ids.map(nameOf))}`;
const blocksOf = (ids) => `block${ids.length === 1 ? "" : "s"} ${ids.length > 6 ? ranges(ids, 3) : listed(ids)}`;
const quote = (text) => `“${visible(text)}”`;

/** {parts: [text or {key, loss}], note} */
export function sentenceOf(e, followed, before, after) {
  if (e.error) return { parts: [`${e.kind} `, key("failed", true), `: ${e.error}`], note: "" };
  if (e.view_error) return { parts: ["This call went well, but ", key("could not be looked at", true), `: ${e.view_error}`] };
  const say = SAY[e.kind];
  const parts = say ? say(e, e.reqs.length === 1 ? nameOf(e.reqs[0]) : "", followed, before, after) : null;
  const [sentence, note] = parts && Array.isArray(parts[0]) ? parts : [parts, ""];
  return { parts: sentence || [`${e.kind} returns.`], note: note || "" };
}

const tokenText = (id) => (piece(id) === null ? `${id}` : `${id} “${piece(id)}”`);

function message(e) {
  const target = e.kind.startsWith("core_client.send") || e.kind === "core.receive" ? "the engine core" : "the caller";
  const verb = e.kind.endsWith("receive") ? "reaches" : "leaves for";
  return [
    [e.reqs.length ? `${named(e.reqs)[0].toUpperCase()}${named(e.reqs).slice(1)}: ` : "", key(e.message_type), ` ${verb} ${target}: ${plural(e.num_bytes, "byte")} in ${plural((e.frame_sizes || []).length, "frame")}.`],
    `Message ${e.msg} in this direction; both sides know it by that number.`,
  ];
}

function scheduled(e) {
  const tokens = e.num_scheduled_tokens || {};
  const ids = Object.keys(tokens);
  const [budget, left] = e.token_budget;
  if (!ids.length) {
    const told = e.finished_req_ids || [];
    return [["Step ", `${e.step} has `, key("no token"), ` to run`, told.length ? `; it only tells the worker that ${named(told)} ${told.length === 1 ? "is" : "are"} finished.` : "."]];
  }
  const parts = ids.map((id) => roles.get(id)?.get(e.group.index) || {});
  const decodes = ids.filter((_, i) => parts[i].kind === "decode");
  const others = ids.filter((id) => !decodes.includes(id));
  const list = [
    ...(decodes.length ? [plural(decodes.length, "decode")] : []),
    ...others.map((id) => `${tokens[id]} of request ${nameOf(id)}${roles.get(id)?.get(e.group.index)?.chunk ? " (a part)" : ""}`),
  ];
  const sum = e.total_num_scheduled_tokens;
  const lost = e.preemptions || [];
  const sentence =
    left === 0
      ? [`Step ${e.step} is `, key("full"), `: ${listed(list)} make ${sum} of ${budget}.`]
      : [`Step ${e.step} uses `, key(`${count(sum)} of ${count(budget)}`), ` tokens: ${listed(list)}.`];
  if (lost.length) sentence.push(` ${named(lost.map((p) => p.req_id)).replace("request", "Request")} `, key(lost.length === 1 ? "is preempted" : "are preempted", true), ".");
  const waits = (e.skipped || []).filter((s) => !lost.some((p) => p.req_id === s.req_id));
  return [sentence, waits.length ? `${named(waits.map((s) => s.req_id)).replace("request", "Request")} ${waits.length === 1 ? "waits" : "wait"}: ${[...new Set(waits.map(whySkipped))].join("; ")}.` : ""];
}
export function whySkipped(s) {
  if (s.reason === "token_budget") return `${s.token_budget} tokens of the budget are left`;
  if (s.reason === "seats") return `all ${s.num_running} seats are taken`;
  if (s.reason === "blocks") return `${plural(s.blocks_needed, "block")} needed, ${s.blocks_free} free`;
  if (s.reason === "not_fit_in_budget") return `its prompt does not fit in the ${s.token_budget} tokens left`;
  if (s.reason === "preemption") return "nobody is admitted in a step that preempts";
  if (s.reason === "head_of_line") return s.blocked_by ? `request ${nameOf(s.blocked_by)} in front of it can't go` : "one in front of it can't go";
  return s.reason.replace(/_/g, " ");
}

function looked(e, r) {
  if (e.skip_reading_prefix_cache) return [[`Request ${r} does `, key("not look"), " into the prefix cache."], "It wants none, or caching is off."];
  if (!e.num_hit_tokens) return [["", key("Nothing is found"), e.num_looked_up ? ": the first block already misses." : `: request ${r} has no whole block to look for.`], "One token at least must be computed, so its last block is looked for only if a token follows."];
  const rest = e.first_miss == null ? "all that may be hit are." : `block ${e.first_miss + 1} of the prompt is the first that misses.`;
  return [["", key(`${e.num_hit_tokens} of ${e.num_tokens}`), ` tokens are found in ${blocksOf(e.block_ids)}; ${rest}`], "Found, not yet taken: allocate_slots takes them if the rest fits as well."];
}

function allocated(e, r, _, before, after) {
  const hits = e.hit_block_ids || [];
  const fresh = e.new_block_ids || [];
  if (e.refused)
    return [[`Request ${r} is `, key("refused", true), `: it needs ${plural(e.blocks_needed, "block")} and ${e.num_free_blocks[0]} ${e.num_free_blocks[0] === 1 ? "is" : "are"} free.`], e.full_sequence_must_fit ? "To be admitted its whole sequence must fit, not only this part." : "Somebody must give blocks back first."];
  const role = roles.get(e.reqs[0])?.get(e.group.index) || {};
  const free = `${count(e.num_free_blocks[1])} of ${count(pool - 1)} stay free.`;
  if (role.resumed && e.num_computed_tokens === 0)
    return [[`Request ${r} `, key("resumes"), `: ${hits.length ? `${e.num_hit_tokens} of ${e.num_tokens} tokens are reused in ${blocksOf(hits)}` : "nothing of it is left in the cache"}, ${e.num_new_tokens} are computed again.`], fresh.length ? `It gets ${blocksOf(fresh)}; ${free}` : ""];
  if (hits.length) {
    const others = [...new Set(hits.flatMap((block) => owners(after, block)))].filter((id) => id !== e.reqs[0]);
    const shares = others.length ? [`Request ${r} `, key("shares"), ` ${blocksOf(hits)} with ${named(others)}: `] : [`Request ${r} `, key("takes up"), ` ${blocksOf(hits)} from the cache: `];
    return [[...shares, `${e.num_hit_tokens} of its ${e.num_tokens} tokens need no work.`], fresh.length ? `For the rest it gets ${blocksOf(fresh)}; ${free}` : free];
  }
  const from = e.num_computed_tokens + (e.num_hit_tokens || 0);
  const to = from + e.num_new_tokens - 1;
  const span = from === to ? `token ${from}` : `tokens ${from}–${to}`;
  if (!fresh.length) return [[`Request ${r} needs `, key("no new block"), `: ${span} ${from === to ? "has" : "have"} room in the ${plural(e.num_blocks[1], "block")} it holds.`], free];
  return [[`Request ${r} `, key("gets"), ` ${blocksOf(fresh)} for ${span}; ${free}`], ""];
}

function freed(e, r) {
  const p = e.up?.kind === "schedule" ? (e.up.preemptions || []).find((one) => one.req_id === e.reqs[0]) : null;
  const blocks = e.block_ids || [];
  if (p) {
    const by = p.for_req_id === e.reqs[0] ? `It needs ${plural(p.blocks_needed, "more block")} itself` : `Request ${nameOf(p.for_req_id)} needs ${plural(p.blocks_needed, "block")}`;
    return [[`Request ${r} is `, key("preempted", true), `. ${by} and ${p.blocks_free} of ${pool - 1} ${p.blocks_free === 1 ? "is" : "are"} free; the last one admitted has to go.`], `It gives ${blocksOf(blocks)} back and keeps its tokens; ${p.num_computed_tokens} computed ones are lost, as far as no hash finds them.`];
  }
  return [[`Request ${r} `, key("lets go"), ` of ${blocksOf(blocks)}; they go to the end of the free queue, last block first.`], "Blocks with a hash can still be hit until somebody takes them."];
}

function flattened(e) {
  const starts = e.query_start_loc.slice(0, -1);
  const later = starts.map((row) => e.positions[row]).filter((p) => p > 0);
  const text = later.length ? ` ${later.length === starts.length ? (later.length === 1 ? "It starts" : "They start") : `${later.length} of them ${later.length === 1 ? "starts" : "start"}`} at position${new Set(later).size === 1 ? "" : "s"} ${listed([...new Set(later)])}: what is before is in the cache.` : " All start at position 0.";
  return [[`${plural(e.num_tokens, "token")} of ${plural(starts.length, "request")} become `, key("one flat row"), `.${text}`], `slot = block × ${blockSize} + offset, where block = block table[position ÷ ${blockSize}].`];
}

function updated(e, _, followed) {
  const ended = (e.updates || []).filter((u) => u.finish_reason);
  if (ended.length)
    return [[`${named(ended.map((u) => u.req_id)).replace("request", "Request")} ${ended.length === 1 ? "is" : "are"} `, key("done"), ` (${[...new Set(ended.map((u) => u.finish_reason))].join(", ")}): ${ended.map((u) => plural(u.num_tokens[1] - (params[u.req_id]?.numPrompt ?? 0), "token")).join(", ")}.`], "The blocks went to the end of the free queue, last block first."];
  const grown = (e.updates || []).filter((u) => u.num_tokens[1] > u.num_tokens[0]);
  return [[`${plural(grown.length, "request")} `, key(grown.length === 1 ? "grows" : "grow"), ` by the sampled token${grown.length === 1 ? "" : "s"}; nobody is done.`], (e.updates || []).length > grown.length ? "The others still miss prompt tokens: nothing was sampled for them." : ""];
}

function sampled(e, r, followed) {
  const id = e.reqs.length === 1 ? e.reqs[0] : followed;
  const row = (e.req_ids || []).indexOf(id);
  const got = e.sampled_token_ids?.[row];
  const rows = (e.req_ids || []).length;
  if (!Array.isArray(got)) return [[key(plural(rows, "row")), " get one token each."]];
  if (!got.length) return [[`The sample of request ${nameOf(id)} is `, key("thrown away"), ": prompt tokens are still missing."], ""];
  return [[`Request ${nameOf(id)} gets token `, key(tokenText(got[0])), "."], rows > 1 ? `${plural(rows, "row")} were sampled together.` : ""];
}

function detokenized(e, r) {
  const n = e.num_output_tokens?.[1];
  if (e.stop_string != null) return [[`Token ${n} of request ${r} completes the `, key("stop string", true), ` ${typeof e.stop_string === "string" ? quote(e.stop_string) : ""}. The text is cut to ${plural(e.num_chars[1], "character")}; ${n === 1 ? "its id stays" : `all ${n} ids stay`}.`], "The core knows no stop strings. It learns by ABORT."];
  if (typeof e.new_text === "number") return [[`Token ${n} of request ${r} adds `, key(plural(e.new_text, "character")), "."]];
  if (!e.new_text) return [[`Token ${n} of request ${r} adds `, key("nothing yet"), "."], "It is a part of a character, or a token without text."];
  return [[`Token ${n} of request ${r} adds `, key(quote(e.new_text)), "."], e.num_held_chars ? `The last ${plural(e.num_held_chars, "character")} are held back: a stop string may begin there.` : ""];
}

const rendered = (e, r) => [[`The ${e.kind === "render_chat" ? "conversation" : "prompt"} of request ${r || "?"} becomes `, key(plural(e.num_prompt_tokens, "token id")), "."], e.kind === "render_chat" ? "The chat template wraps it first." : ""];
const asked = (e) => [[`A call for `, key(plural(e.num_requests, "request")), ": from its prompts to its outputs."], "All events of this trace are inside it, as long as it runs."];
const shape = (numbers) => (numbers || []).join(" × ");
const layers = (e) => (e.layer == null ? `${e.calls} layers` : `layer ${e.layer}`);
const executed = (e) => [[`${e.kind.startsWith("executor") ? "The core hands the plan to the executor" : "The executor hands the plan to its worker"}: `, key(plural(e.total_num_scheduled_tokens, "token")), ` of ${plural(e.reqs.length, "request")}.`], e.pending ? "The logits wait with the worker; sample_tokens comes next." : ""];

const SAY = {
  generate: asked,
  chat: asked,
  render_cmpl: rendered,
  render_chat: rendered,
  "llm_engine.add_request": (e) => [[`Prompt ${e.external_req_id} `, key("enters the engine"), e.n > 1 ? ` as ${e.n} requests.` : "."], `Inside it is called ${e.request_id}.`],
  process_inputs: (e) => [[`The request is `, key("checked"), `: ${plural(e.num_prompt_tokens, "prompt token")}, at most ${plural(e.max_tokens, "new token")}${e.eos_token_id == null ? ", no end token" : `, ends at token ${tokenText(e.eos_token_id)}`}.`]],
  assign_request_id: (e) => [[`Prompt ${e.external_req_id} is called `, key(e.request_id), " inside: ids of callers need not be unique."]],
  "output_processor.add_request": (e, r) => [[`Request ${r} is `, key("opened"), " on the caller's side, before the core hears of it."], e.parent_req_id ? `One of the answers of ${e.parent_req_id}.` : ""],
  "core_client.add_request": (e, r) => [[`Request ${r} is `, key("handed to the core"), `: ${plural(e.num_prompt_tokens, "prompt token")}.`], hasProcesses ? "" : "In one process: no message, the scheduler is called at once."],
  "core_client.send": message,
  "core.receive": message,
  "core.send": message,
  "core_client.receive": message,
  preprocess_add_request: (e, r) => [[`Request ${r} has `, key(plural((e.block_hashes || []).length, "full block")), `: each gets a hash of its tokens and all before.`], `${e.num_prompt_tokens} prompt tokens, ${blockSize} to a block.`],
  "scheduler.add_request": (e, r) => [[`Request ${r} is `, key("queued"), `: ${plural(e.num_prompt_tokens, "prompt token")}, ${plural(e.queue_position, "request")} ahead of it.`]],
  step: (e) => [[`Step ${e.step} of the core: `, key(e.executed ? "plan, model, tokens, update" : "nothing ran"), `; ${plural(e.num_outputs, "output")} for the caller.`]],
  schedule: scheduled,
  get_computed_blocks: looked,
  allocate_slots: allocated,
  cache_blocks: (e, r) => [[`Of request ${r} `, key(plural(e.num_cached_blocks[1], "leading block")), ` ${e.num_cached_blocks[1] === 1 ? "has" : "have"} a hash${e.num_cached_blocks[0] === e.num_cached_blocks[1] ? ": no new one is full" : ""}.`]],
  forget_uncomputed_blocks: (e, r) => [[`${blocksOf(e.block_ids || []).replace("block", "Block")} of request ${r} `, key("can't be hit", true), " any more: this step was to fill them."]],
  free: freed,
  get_cached_block: (e) => [[e.block_id == null ? "No block has the hash " : `Block ${e.block_id} has the hash `, `${e.block_hash}: `, key(e.block_id == null ? "a miss" : "a hit"), "."]],
  touch: (e) => [[`${blocksOf(e.block_ids || []).replace("block", "Block")} ${(e.block_ids || []).length === 1 ? "is" : "are"} `, key("taken hold of"), `: ref count ${(e.ref_cnts || []).join(", ")}.`], "Those that nobody held leave the free queue."],
  get_new_blocks: (e) => [[`${blocksOf(e.block_ids || []).replace("block", "Block")} ${(e.block_ids || []).length === 1 ? "is" : "are"} `, key("taken"), " from the front of the free queue."], (e.evicted_block_ids || []).length ? `Evicted: what ${blocksOf(e.evicted_block_ids)} held can't be hit any more.` : ""],
  cache_full_blocks: (e, r) => [[`${blocksOf(e.block_ids || []).replace("block", "Block")} of request ${r} `, key("can be hit"), " from now on."], "The model has not filled them yet: it does so in this step, before anyone reads."],
  free_blocks: (e) => [[`${blocksOf(e.block_ids || []).replace("block", "Block")} `, key((e.block_ids || []).length === 1 ? "loses" : "lose"), ` a holder; those with none left join the end of the free queue in this order.`]],
  reset_prefix_cache: (e) => [[e.done ? "All hashes are " : "The hashes are ", key(e.done ? "forgotten" : "kept", e.done), e.done ? "." : ": a block is in use."]],
  "executor.execute_model": executed,
  "worker.execute_model": executed,
  update_states: (e) => [[`The worker's batch has `, key(plural((e.req_ids || []).length, "row")), `: ${plural((e.added || []).length, "new one")}, ${(e.removed || []).length} gone.`], Object.keys(e.moved || {}).length ? `Holes are closed: ${Object.entries(e.moved).map(([id, [a, b]]) => `request ${nameOf(id)} moves from row ${a} to ${b}`).join(", ")}.` : ""],
  prepare_inputs: flattened,
  get_slot_mappings: (e) => [[key(plural(e.num_slots, "slot")), ` go to the device (${e.device}): ${(e.slot_ranges || []).slice(0, 4).map(([a, b]) => (a === b ? a : `${a}–${b}`)).join(", ")}${(e.slot_ranges || []).length > 4 ? " and more" : ""}.`], "The same for every layer."],
  build_attention_metadata: (e) => [[`What the attention layers must know, `, key("made once"), `: ${plural(e.num_reqs, "row")}, longest query ${e.max_query_len}, longest sequence ${e.max_seq_len}.`], `The block table is ${shape(e.block_table_shape)}.`],
  model_forward: (e) => [[`${plural(e.num_tokens, "token")} go through `, key(plural(data.header.model?.num_layers, "layer")), `: hidden states ${shape(e.hidden_states_shape)}.`], e.dtype || ""],
  do_kv_cache_update: (e) => [[key(e.num_tokens === 1 ? "1 key and value" : `${count(e.num_tokens)} keys and values`), ` ${e.num_tokens === 1 ? "goes" : "go"} to ${plural(e.num_tokens, "slot")}, in ${layers(e)}: ${shape(e.key_shape)}.`], "Written first, so that the queries of this step can read them."],
  attention: (e) => [[`The queries of ${plural(e.num_tokens, "token")} `, key("read K and V"), ` through the block table, in ${layers(e)}: ${shape(e.query_shape)}.`], `Backend ${e.backend}; longest query ${e.max_query_len}, longest sequence ${e.max_seq_len}.`],
  "kernel.launch": (e) => {
    const programs = e.children.filter((child) => child.kind === "kernel.program");
    const busy = programs.filter((program) => Object.keys(program.writes || {}).length).length;
    const rest = programs.length - busy;
    const work = programs.length ? ` ${busy} do work${rest ? `; ${rest} find no token and leave` : ""}.` : "";
    return [["One launch, ", key(`${shape(e.grid)} programs`), `, for ${plural(e.group.batch?.num_tokens, "token")} of ${plural(e.reqs.length, "request")}.${work}`], e.device_us ? `${e.device_us} µs of work on the GPU.` : ""];
  },
  "kernel.program": (e) => {
    const tiles = (e.tiles || []).length;
    const written = Object.keys(e.writes || {});
    const does = tiles ? [key(plural(tiles, "tile")), " of keys are walked"] : [key(written.length ? "writes" : "nothing to do")];
    return [[`Program (${(e.program || []).join(", ")}) of ${e.up?.name || "a launch"}: `, ...does, written.length ? `; it writes ${written.join(" and ")}.` : "."], "Its times are those of the launch."];
  },
  compute_logits: (e) => [[`${plural(e.hidden_states_shape?.[0], "hidden state")} become `, key(`${count(e.logits_shape?.[1])} logits`), " each."], "Only the last token of each row, or prompt tokens whose logprobs are wanted."],
  sample_tokens: sampled,
  "sampler.forward": (e) => [[`Logits become tokens: `, key(e.all_greedy ? "the likeliest" : e.all_random ? "drawn" : "drawn or the likeliest"), ` of ${count(e.logits_shape?.[1])}, for ${plural(e.logits_shape?.[0], "row")}.`]],
  update_from_output: updated,
  get_output: (e) => [[hasProcesses ? "The caller " : "The caller takes the next step: ", key(hasProcesses ? "waits for the core" : plural(e.num_outputs, "output")), hasProcesses ? `; it gets ${plural(e.num_outputs, "output")}.` : "."]],
  process_outputs: (e) => {
    const ended = Object.keys(e.finished || {});
    return [[`${plural(e.num_outputs, "output")} become `, key("text"), ended.length ? `; ${named(ended)} ${ended.length === 1 ? "ends" : "end"} here.` : "."], (e.reqs_to_abort || []).length ? `The core must be told to end ${named(e.reqs_to_abort)}.` : ""];
  },
  detokenize: detokenized,
  abort_requests: (e) => [[`The core is told to `, key("end"), ` ${named(e.reqs)}.`], "A stop string was found, or the caller gives up."],
  finish_requests: (e) => [[(e.finished || []).length ? `${named(e.finished).replace("request", "Request")} ${e.finished.length === 1 ? "is" : "are"} ` : "Nothing ", key((e.finished || []).length ? `ended (${e.status.replace("FINISHED_", "").toLowerCase()})` : "to end"), (e.finished || []).length ? "; the blocks go back." : ": it had ended already."]],
  run_engine: (e) => [[`The loop of the caller: it steps until `, key(plural((e.outputs || []).length || e.num_requests, "answer")), (e.outputs || []).length === 1 ? " is there." : " are there."]],
  unfinished: (e) => [[`${e.of || "A call"} `, key("never returned", true), ": its process ended first."]],
};
