"""One plain sentence for an event, with its numbers; the key word is marked, and a loss is marked as one.

Interface: Teller, Said, Key; visible.
Must not know: how a sentence is drawn.

For one line of a table, as it concerns one request, there is describe.py; for the answer to "why", explain.py.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from minivllm.show.describe import size
from minivllm.show.reasons import listed, requests
from minivllm.show.steps import Steps
from minivllm.trace.events_worker import slot_ranges
from minivllm.trace.replay import Trace

MANY_BLOCKS = 6  # more are told as runs


class Key(NamedTuple):
    """The word of a sentence on which it turns."""

    text: str
    is_loss: bool = False


class Said(NamedTuple):
    """A sentence in parts, and what there is to add."""

    parts: tuple[str | Key, ...]
    note: str = ""


def said(*parts: str | Key, note: str = "") -> Said:
    return Said(tuple(part for part in parts if part), note)


def visible(text: str) -> str:
    """A text with its line ends, tabs and outer spaces made visible."""
    shown = text.replace("\n", "↵").replace("\t", "⇥")
    shown = f"·{shown[1:]}" if shown.startswith(" ") else shown
    return f"{shown[:-1]}·" if shown.endswith(" ") else shown


def quote(text: str) -> str:
    return f"“{visible(text)}”"


def count(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def many(number: int | None, word: str) -> str:
    """`1 token`, `2,048 tokens`."""
    return f"{count(number)} {word}{'s' * (number != 1)}"


def runs(numbers: Sequence[int], limit: int) -> str:
    """`16–31, 48`: runs of numbers; more than `limit` are cut."""
    words = [str(a) if a == b else f"{a}–{b}" for a, b in slot_ranges(list(numbers))]
    return ", ".join(words) if len(words) <= limit else f"{', '.join(words[:limit])} …"


def blocks(block_ids: Sequence[int]) -> str:
    named = runs(block_ids, 3) if len(block_ids) > MANY_BLOCKS else listed(block_ids) if block_ids else ""
    return f"block{'s' * (len(block_ids) != 1)} {named}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


class Teller:
    """Tells the events of one trace. pieces: token id -> its text, as far as it is known."""

    def __init__(self, trace: Trace, steps: Steps, pieces: Mapping[int, str]) -> None:
        self.trace, self.steps, self.pieces = trace, steps, pieces
        self.has_processes = any(event.proc == "core" for event in trace)
        self.usable = (trace.header.num_gpu_blocks or 0) - 1  # without the null block
        self.block_size = trace.header.config.get("block_size") or 16

    def tell(self, event: Any, followed: str | None = None) -> Said:
        """followed: whose part is told where an event concerns several requests."""
        if event.error:
            return said(f"{event.kind} ", Key("failed", True), f": {event.error}")
        if event.view_error:
            could_not = Key("could not be looked at", True)
            return said("This call went well, but ", could_not, f": {event.view_error}")
        say = SAY.get(event.kind)
        return say(self, event, followed) if say else said(f"{event.kind} returns.")

    # ------------------------------------------------------------------ words

    def own(self, event: Any) -> str:
        """The name of the one request that an event concerns."""
        return self.steps.name(event.reqs[0]) if len(event.reqs) == 1 else ""

    def named(self, request_ids: Sequence[str]) -> str:
        names = [self.steps.name(request_id) for request_id in request_ids]
        return requests(names) if names else "requests "

    def token(self, token_id: int) -> str:
        piece = self.pieces.get(token_id)
        return str(token_id) if piece is None else f"{token_id} {quote(piece)}"

    def num_prompt(self, request_id: str) -> int:
        return self.steps.num_prompt.get(request_id, 0)


# ---------------------------------------------------------------------- the caller's side


def _asked(_: Teller, e: Any, __: Any) -> Said:
    note = "All events of this trace are inside it, as long as it runs."
    return said("A call for ", Key(many(e.num_requests, "request")), ": from its prompts to its outputs.", note=note)


def _rendered(t: Teller, e: Any, _: Any) -> Said:
    is_chat = e.kind == "render_chat"
    head = f"The {'conversation' if is_chat else 'prompt'} of request {t.own(e) or '?'} becomes "
    note = "The chat template wraps it first." if is_chat else ""
    return said(head, Key(many(e.num_prompt_tokens, "token id")), ".", note=note)


def _entered(_: Teller, e: Any, __: Any) -> Said:
    tail = f" as {e.n} requests." if e.n > 1 else "."
    return said(
        f"Prompt {e.external_req_id} ", Key("enters the engine"), tail, note=f"Inside it is called {e.request_id}."
    )


def _checked(t: Teller, e: Any, _: Any) -> Said:
    end = ", no end token" if e.eos_token_id is None else f", ends at token {t.token(e.eos_token_id)}"
    tail = f": {many(e.num_prompt_tokens, 'prompt token')}, at most {many(e.max_tokens, 'new token')}{end}."
    return said("The request is ", Key("checked"), tail)


def _called(_: Teller, e: Any, __: Any) -> Said:
    return said(
        f"Prompt {e.external_req_id} is called ", Key(e.request_id), " inside: ids of callers need not be unique."
    )


def _opened(t: Teller, e: Any, _: Any) -> Said:
    note = f"One of the answers of {e.parent_req_id}." if e.parent_req_id else ""
    tail = " on the caller's side, before the core hears of it."
    return said(f"Request {t.own(e)} is ", Key("opened"), tail, note=note)


def _handed(t: Teller, e: Any, _: Any) -> Said:
    note = "" if t.has_processes else "In one process: no message, the scheduler is called at once."
    tail = f": {many(e.num_prompt_tokens, 'prompt token')}."
    return said(f"Request {t.own(e)} is ", Key("handed to the core"), tail, note=note)


def _message(t: Teller, e: Any, _: Any) -> Said:
    target = "the engine core" if e.kind in ("core_client.send", "core.receive") else "the caller"
    verb = "reaches" if e.kind.endswith("receive") else "leaves for"
    who = f"{_capital(t.named(e.reqs))}: " if e.reqs else ""
    size_of_it = f"{many(e.num_bytes, 'byte')} in {many(len(e.frame_sizes), 'frame')}"
    note = f"Message {e.msg} in this direction; both sides know it by that number."
    return said(who, Key(e.message_type), f" {verb} {target}: {size_of_it}.", note=note)


def _got_output(t: Teller, e: Any, _: Any) -> Said:
    outputs = many(e.num_outputs, "output")
    if t.has_processes:
        return said("The caller ", Key("waits for the core"), f"; it gets {outputs}.")
    return said("The caller takes the next step: ", Key(outputs), ".")


def _processed(t: Teller, e: Any, _: Any) -> Said:
    ended = list(e.finished)
    tail = f"; {t.named(ended)} {'ends' if len(ended) == 1 else 'end'} here." if ended else "."
    note = f"The core must be told to end {t.named(e.reqs_to_abort)}." if e.reqs_to_abort else ""
    return said(f"{many(e.num_outputs, 'output')} become ", Key("text"), tail, note=note)


def _detokenized(t: Teller, e: Any, _: Any) -> Said:
    number = e.num_output_tokens[1] if e.num_output_tokens else "?"
    head = f"Token {number} of request {t.own(e)} "
    if e.stop_string is not None:
        stop = quote(e.stop_string) if isinstance(e.stop_string, str) else ""
        ids = "its id stays" if number == 1 else f"all {number} ids stay"
        cut = f" {stop}. The text is cut to {many(e.num_chars[1], 'character')}; {ids}."
        note = "The core knows no stop strings. It learns by ABORT."
        return said(f"{head}completes the ", Key("stop string", True), cut, note=note)
    if isinstance(e.new_text, int):
        return said(f"{head}adds ", Key(many(e.new_text, "character")), ".")
    if not e.new_text:
        note = "It is a part of a character, or a token without text."
        return said(f"{head}adds ", Key("nothing yet"), ".", note=note)
    held = many(e.num_held_chars, "character")
    note = f"The last {held} are held back: a stop string may begin there." if e.num_held_chars else ""
    return said(f"{head}adds ", Key(quote(e.new_text)), ".", note=note)


def _given_up(t: Teller, e: Any, _: Any) -> Said:
    return said(
        "The core is told to ",
        Key("end"),
        f" {t.named(e.reqs)}.",
        note="A stop string was found, or the caller gives up.",
    )


def _ran(_: Teller, e: Any, __: Any) -> Said:
    answers = many(len(e.outputs) or e.num_requests, "answer")
    tail = " is there." if len(e.outputs) == 1 else " are there."
    return said("The loop of the caller: it steps until ", Key(answers), tail)


def _unfinished(_: Teller, e: Any, __: Any) -> Said:
    return said(f"{e.of or 'A call'} ", Key("never returned", True), ": its process ended first.")


# ---------------------------------------------------------------------- the scheduler


def _hashed(t: Teller, e: Any, _: Any) -> Said:
    full = Key(many(len(e.block_hashes), "full block"))
    note = f"{e.num_prompt_tokens} prompt tokens, {t.block_size} to a block."
    return said(f"Request {t.own(e)} has ", full, ": each gets a hash of its tokens and all before.", note=note)


def _queued(t: Teller, e: Any, _: Any) -> Said:
    tail = f": {many(e.num_prompt_tokens, 'prompt token')}, {many(e.queue_position, 'request')} ahead of it."
    return said(f"Request {t.own(e)} is ", Key("queued"), tail)


def _stepped(_: Teller, e: Any, __: Any) -> Said:
    what = "plan, model, tokens, update" if e.executed else "nothing ran"
    return said(f"Step {e.step} of the core: ", Key(what), f"; {many(e.num_outputs, 'output')} for the caller.")


def _scheduled(t: Teller, e: Any, _: Any) -> Said:
    tokens, told = e.num_scheduled_tokens, e.finished_req_ids
    budget, left = e.token_budget
    if not tokens:
        only = f"; it only tells the worker that {t.named(told)} {'is' if len(told) == 1 else 'are'} finished."
        return said("Step ", f"{e.step} has ", Key("no token"), " to run", only if told else ".")
    roles = {request_id: t.steps.role(request_id, e) for request_id in tokens}
    decodes = sum(role.kind == "decode" for role in roles.values())
    work = [many(decodes, "decode")] if decodes else []
    work += [
        f"{tokens[i]} of request {t.steps.name(i)}{' (a part)' if role.is_chunk else ''}"
        for i, role in roles.items()
        if role.kind != "decode"
    ]
    used = e.total_num_scheduled_tokens
    parts: list[str | Key] = [f"Step {e.step} uses ", Key(f"{used:,} of {budget:,}"), f" tokens: {listed(work)}."]
    if left == 0:
        parts = [f"Step {e.step} is ", Key("full"), f": {listed(work)} make {used} of {budget}."]
    lost = [preemption.req_id for preemption in e.preemptions]
    if lost:
        is_lost = Key("is preempted" if len(lost) == 1 else "are preempted", True)
        parts += [f" {_capital(t.named(lost))} ", is_lost, "."]
    waits = [request_id for request_id in (skipped.req_id for skipped in e.skipped) if request_id not in lost]
    note = ""
    if waits:
        whys = dict.fromkeys(t.steps.role(request_id, e).waits[2] for request_id in waits)
        note = f"{_capital(t.named(waits))} {'waits' if len(waits) == 1 else 'wait'}: {'; '.join(whys)}."
    return said(*parts, note=note)


def _updated(t: Teller, e: Any, _: Any) -> Said:
    ended = [update for update in e.updates if update.finish_reason]
    if ended:
        who = _capital(t.named([update.req_id for update in ended]))
        why = ", ".join(dict.fromkeys(update.finish_reason for update in ended))
        made = ", ".join(many(u.num_tokens[1] - t.num_prompt(u.req_id), "token") for u in ended)
        note = "The blocks went to the end of the free queue, last block first."
        return said(f"{who} {'is' if len(ended) == 1 else 'are'} ", Key("done"), f" ({why}): {made}.", note=note)
    grown = sum(update.num_tokens[1] > update.num_tokens[0] for update in e.updates)
    tail = f" by the sampled token{'s' * (grown != 1)}; nobody is done."
    note = "The others still miss prompt tokens: nothing was sampled for them." if len(e.updates) > grown else ""
    return said(f"{many(grown, 'request')} ", Key("grows" if grown == 1 else "grow"), tail, note=note)


def _ended(t: Teller, e: Any, _: Any) -> Said:
    if not e.finished:
        return said("Nothing ", Key("to end"), ": it had ended already.")
    how = e.status.replace("FINISHED_", "").lower()
    who = f"{_capital(t.named(e.finished))} {'is' if len(e.finished) == 1 else 'are'} "
    return said(who, Key(f"ended ({how})"), "; the blocks go back.")


# ---------------------------------------------------------------------- the KV cache


def _looked(t: Teller, e: Any, _: Any) -> Said:
    if e.skip_reading_prefix_cache:
        note = "It wants none, or caching is off."
        return said(f"Request {t.own(e)} does ", Key("not look"), " into the prefix cache.", note=note)
    if not e.num_hit_tokens:
        why = (
            ": the first block already misses."
            if e.num_looked_up
            else f": request {t.own(e)} has no whole block to look for."
        )
        note = "One token at least must be computed, so its last block is looked for only if a token follows."
        return said(Key("Nothing is found"), why, note=note)
    rest = "all that may be hit are."
    if e.first_miss is not None:
        rest = f"block {e.first_miss + 1} of the prompt is the first that misses."
    note = "Found, not yet taken: allocate_slots takes them if the rest fits as well."
    found = Key(f"{e.num_hit_tokens} of {e.num_tokens}")
    return said(found, f" tokens are found in {blocks(e.block_ids)}; {rest}", note=note)


def _allocated(t: Teller, e: Any, _: Any) -> Said:
    head, hits, fresh = f"Request {t.own(e)} ", e.hit_block_ids, e.new_block_ids
    if e.refused:
        free = e.num_free_blocks[0]
        lack = f": it needs {many(e.blocks_needed, 'block')} and {free} {'is' if free == 1 else 'are'} free."
        note = "Somebody must give blocks back first."
        if e.full_sequence_must_fit:
            note = "To be admitted its whole sequence must fit, not only this part."
        return said(f"{head}is ", Key("refused", True), lack, note=note)
    left = f"{count(e.num_free_blocks[1])} of {count(t.usable)} stay free."
    if t.steps.role(e.reqs[0], e).resumed and e.num_computed_tokens == 0:
        kept = "nothing of it is left in the cache"
        if hits:
            kept = f"{e.num_hit_tokens} of {e.num_tokens} tokens are reused in {blocks(hits)}"
        note = f"It gets {blocks(fresh)}; {left}" if fresh else ""
        return said(head, Key("resumes"), f": {kept}, {e.num_new_tokens} are computed again.", note=note)
    if hits:
        note = f"For the rest it gets {blocks(fresh)}; {left}" if fresh else left
        return said(head, *_taken_up(t, e), f"{e.num_hit_tokens} of its {e.num_tokens} tokens need no work.", note=note)
    first = e.num_computed_tokens + e.num_hit_tokens
    last = first + e.num_new_tokens - 1
    span = f"token {first}" if first == last else f"tokens {first}–{last}"
    if not fresh:
        room = f": {span} {'has' if first == last else 'have'} room in the {many(e.num_blocks[1], 'block')} it holds."
        return said(f"{head}needs ", Key("no new block"), room, note=left)
    return said(head, Key("gets"), f" {blocks(fresh)} for {span}; {left}")


def _taken_up(t: Teller, e: Any) -> list[str | Key]:
    tables = t.trace.state_at(e.seq).block_tables
    holders = [i for block in e.hit_block_ids for i, table in tables.items() if block in table and i != e.reqs[0]]
    if not holders:
        return [Key("takes up"), f" {blocks(e.hit_block_ids)} from the cache: "]
    return [Key("shares"), f" {blocks(e.hit_block_ids)} with {t.named(list(dict.fromkeys(holders)))}: "]


def _named(t: Teller, e: Any, _: Any) -> Said:
    before, after = e.num_cached_blocks
    tail = f" {'has' if after == 1 else 'have'} a hash{': no new one is full' if before == after else ''}."
    return said(f"Of request {t.own(e)} ", Key(many(after, "leading block")), tail)


def _forgot(t: Teller, e: Any, _: Any) -> Said:
    head = f"{_capital(blocks(e.block_ids))} of request {t.own(e)} "
    return said(head, Key("can't be hit", True), " any more: this step was to fill them.")


def _freed(t: Teller, e: Any, _: Any) -> Said:
    up = t.trace.parent(e)
    lost = (
        [one for one in up.preemptions if one.req_id == e.reqs[0]] if up is not None and up.kind == "schedule" else []
    )
    if not lost:
        tail = f" of {blocks(e.block_ids)}; they go to the end of the free queue, last block first."
        note = "Blocks with a hash can still be hit until somebody takes them."
        return said(f"Request {t.own(e)} ", Key("lets go"), tail, note=note)
    p = lost[0]
    by = f"Request {t.steps.name(p.for_req_id)} needs {many(p.blocks_needed, 'block')}"
    if p.for_req_id == e.reqs[0]:
        by = f"It needs {many(p.blocks_needed, 'more block')} itself"
    free = f"{p.blocks_free} of {t.usable} {'is' if p.blocks_free == 1 else 'are'} free"
    note = f"It gives {blocks(e.block_ids)} back and keeps its tokens; {p.num_computed_tokens} computed ones are lost, "
    note += "as far as no hash finds them."
    tail = f". {by} and {free}; the last one admitted has to go."
    return said(f"Request {t.own(e)} is ", Key("preempted", True), tail, note=note)


def _found(_: Teller, e: Any, __: Any) -> Said:
    if e.block_id is None:
        return said("No block has the hash ", f"{e.block_hash}: ", Key("a miss"), ".")
    return said(f"Block {e.block_id} has the hash ", f"{e.block_hash}: ", Key("a hit"), ".")


def _touched(_: Teller, e: Any, __: Any) -> Said:
    head = f"{_capital(blocks(e.block_ids))} {'is' if len(e.block_ids) == 1 else 'are'} "
    tail = f": ref count {', '.join(map(str, e.ref_cnts))}."
    return said(head, Key("taken hold of"), tail, note="Those that nobody held leave the free queue.")


def _taken(_: Teller, e: Any, __: Any) -> Said:
    head = f"{_capital(blocks(e.block_ids))} {'is' if len(e.block_ids) == 1 else 'are'} "
    lost = e.evicted_block_ids
    note = f"Evicted: what {blocks(lost)} held can't be hit any more." if lost else ""
    return said(head, Key("taken"), " from the front of the free queue.", note=note)


def _findable(t: Teller, e: Any, _: Any) -> Said:
    head = f"{_capital(blocks(e.block_ids))} of request {t.own(e)} "
    note = "The model has not filled them yet: it does so in this step, before anyone reads."
    return said(head, Key("can be hit"), " from now on.", note=note)


def _released(_: Teller, e: Any, __: Any) -> Said:
    tail = " a holder; those with none left join the end of the free queue in this order."
    return said(f"{_capital(blocks(e.block_ids))} ", Key("loses" if len(e.block_ids) == 1 else "lose"), tail)


def _reset(_: Teller, e: Any, __: Any) -> Said:
    if e.done:
        return said("All hashes are ", Key("forgotten", True), ".")
    return said("The hashes are ", Key("kept"), ": a block is in use.")


# ---------------------------------------------------------------------- the worker


def _executed(_: Teller, e: Any, __: Any) -> Said:
    is_executor = e.kind.startswith("executor")
    head = "The core hands the plan to the executor: " if is_executor else "The executor hands the plan to its worker: "
    note = "The logits wait with the worker; sample_tokens comes next." if e.pending else ""
    tokens = Key(many(e.total_num_scheduled_tokens, "token"))
    return said(head, tokens, f" of {many(len(e.reqs), 'request')}.", note=note)


def _rows(t: Teller, e: Any, _: Any) -> Said:
    moves = [f"request {t.steps.name(i)} moves from row {a} to {b}" for i, (a, b) in e.moved.items()]
    note = f"Holes are closed: {', '.join(moves)}." if moves else ""
    tail = f": {many(len(e.added), 'new one')}, {len(e.removed)} gone."
    return said("The worker's batch has ", Key(many(len(e.req_ids), "row")), tail, note=note)


def _prepared(t: Teller, e: Any, _: Any) -> Said:
    starts = [e.positions[flat] for flat in e.query_start_loc[:-1]]
    later = [position for position in starts if position > 0]
    text = " All start at position 0."
    if later:
        one = len(later) == 1
        head = f"{len(later)} of them {'starts' if one else 'start'}"
        if len(later) == len(starts):
            head = "It starts" if one else "They start"
        places = list(dict.fromkeys(later))
        text = f" {head} at position{'s' * (len(places) != 1)} {listed(places)}: what is before is in the cache."
    row = f"{many(e.num_tokens, 'token')} of {many(len(starts), 'request')} become "
    note = f"slot = block × {t.block_size} + offset, where block = block table[position ÷ {t.block_size}]."
    return said(row, Key("one flat row"), f".{text}", note=note)


def _slots(_: Teller, e: Any, __: Any) -> Said:
    shown = ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in e.slot_ranges[:4])
    more = " and more" if len(e.slot_ranges) > 4 else ""
    tail = f" go to the device ({e.device}): {shown}{more}."
    return said(Key(many(e.num_slots, "slot")), tail, note="The same for every layer.")


def _metadata(_: Teller, e: Any, __: Any) -> Said:
    what = f": {many(e.num_reqs, 'row')}, longest query {e.max_query_len}, longest sequence {e.max_seq_len}."
    note = f"The block table is {size(e.block_table_shape)}."
    return said("What the attention layers must know, ", Key("made once"), what, note=note)


def _forward(t: Teller, e: Any, _: Any) -> Said:
    layers = many((t.trace.header.model or {}).get("num_layers"), "layer")
    tail = f": hidden states {size(e.hidden_states_shape)}."
    return said(f"{many(e.num_tokens, 'token')} go through ", Key(layers), tail, note=e.dtype or "")


def _layers(e: Any) -> str:
    return f"{e.calls} layers" if e.layer is None else f"layer {e.layer}"


def _written(_: Teller, e: Any, __: Any) -> Said:
    one = e.num_tokens == 1
    what = Key("1 key and value" if one else f"{count(e.num_tokens)} keys and values")
    where = f" {'goes' if one else 'go'} to {many(e.num_tokens, 'slot')}, in {_layers(e)}: {size(e.key_shape)}."
    return said(what, where, note="Written first, so that the queries of this step can read them.")


def _attended(_: Teller, e: Any, __: Any) -> Said:
    head = f"The queries of {many(e.num_tokens, 'token')} "
    tail = f" through the block table, in {_layers(e)}: {size(e.query_shape)}."
    note = f"Backend {e.backend}; longest query {e.max_query_len}, longest sequence {e.max_seq_len}."
    return said(head, Key("read K and V"), tail, note=note)


def _launched(t: Teller, e: Any, _: Any) -> Said:
    programs = [child for child in t.trace.children(e) if child.kind == "kernel.program"]
    busy = sum(bool(program.writes) for program in programs)
    rest = f"; {len(programs) - busy} find no token and leave" if busy < len(programs) else ""
    work = f" {busy} do work{rest}." if programs else ""
    batch = t.steps.batch(e)
    of = f", for {many(batch.num_tokens if batch else None, 'token')} of {many(len(e.reqs), 'request')}.{work}"
    note = f"{e.device_us} µs of work on the GPU." if e.device_us else ""
    return said("One launch, ", Key(f"{size(e.grid)} programs"), of, note=note)


def _program(t: Teller, e: Any, _: Any) -> Said:
    launch, written = t.trace.parent(e), list(e.writes)
    name = (getattr(launch, "name", None) if launch is not None else None) or "a launch"
    does: list[str | Key] = [Key("writes" if written else "nothing to do")]
    if e.tiles:
        does = [Key(many(len(e.tiles), "tile")), " of keys are walked"]
    tail = f"; it writes {' and '.join(written)}." if written else "."
    head = f"Program ({', '.join(map(str, e.program))}) of {name}: "
    return said(head, *does, tail, note="Its times are those of the launch.")


def _logits(_: Teller, e: Any, __: Any) -> Said:
    note = "Only the last token of each row, or prompt tokens whose logprobs are wanted."
    states = many(e.hidden_states_shape[0], "hidden state")
    return said(f"{states} become ", Key(f"{count(e.logits_shape[1])} logits"), " each.", note=note)


def _sampled(t: Teller, e: Any, followed: str | None) -> Said:
    request_id = e.reqs[0] if len(e.reqs) == 1 else followed
    got = e.sampled_token_ids[e.req_ids.index(request_id)] if request_id in e.req_ids else None
    if not isinstance(got, list):
        return said(Key(many(len(e.req_ids), "row")), " get one token each.")
    if not got:
        tail = ": prompt tokens are still missing."
        return said(f"The sample of request {t.steps.name(request_id)} is ", Key("thrown away"), tail)
    note = f"{many(len(e.req_ids), 'row')} were sampled together." if len(e.req_ids) > 1 else ""
    return said(f"Request {t.steps.name(request_id)} gets token ", Key(t.token(got[0])), ".", note=note)


def _drawn(_: Teller, e: Any, __: Any) -> Said:
    how = "the likeliest" if e.all_greedy else "drawn" if e.all_random else "drawn or the likeliest"
    rows, vocabulary = e.logits_shape
    return said("Logits become tokens: ", Key(how), f" of {count(vocabulary)}, for {many(rows, 'row')}.")


SAY: dict[str, Callable[[Teller, Any, str | None], Said]] = {
    "generate": _asked,
    "chat": _asked,
    "render_cmpl": _rendered,
    "render_chat": _rendered,
    "llm_engine.add_request": _entered,
    "process_inputs": _checked,
    "assign_request_id": _called,
    "output_processor.add_request": _opened,
    "core_client.add_request": _handed,
    "core_client.send": _message,
    "core.receive": _message,
    "core.send": _message,
    "core_client.receive": _message,
    "preprocess_add_request": _hashed,
    "scheduler.add_request": _queued,
    "step": _stepped,
    "schedule": _scheduled,
    "get_computed_blocks": _looked,
    "allocate_slots": _allocated,
    "cache_blocks": _named,
    "forget_uncomputed_blocks": _forgot,
    "free": _freed,
    "get_cached_block": _found,
    "touch": _touched,
    "get_new_blocks": _taken,
    "cache_full_blocks": _findable,
    "free_blocks": _released,
    "reset_prefix_cache": _reset,
    "executor.execute_model": _executed,
    "worker.execute_model": _executed,
    "update_states": _rows,
    "prepare_inputs": _prepared,
    "get_slot_mappings": _slots,
    "build_attention_metadata": _metadata,
    "model_forward": _forward,
    "do_kv_cache_update": _written,
    "attention": _attended,
    "kernel.launch": _launched,
    "kernel.program": _program,
    "compute_logits": _logits,
    "sample_tokens": _sampled,
    "sampler.forward": _drawn,
    "update_from_output": _updated,
    "get_output": _got_output,
    "process_outputs": _processed,
    "detokenize": _detokenized,
    "abort_requests": _given_up,
    "finish_requests": _ended,
    "run_engine": _ran,
    "unfinished": _unfinished,
}
