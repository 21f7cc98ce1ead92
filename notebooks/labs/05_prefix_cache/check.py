"""Lab 05: what is asked about block hashes and the prefix cache, and what is expected."""

from functools import cache
from itertools import combinations, product
from random import Random
from typing import Any

from minivllm.course.grader import evidence
from minivllm.course.grader.judge import Ask, Check, Failure, Observation, Outcome
from minivllm.course.grader.words import count, tell_list
from minivllm.lessons.lab05 import observe as observe_cache

NUM_RANDOM = 300
LONGEST = 6  # blocks of a chain
OPERATIONS: tuple[tuple[str, Any], ...] = (
    ("cache", [1, 0]),
    ("cache", [2, 0]),
    ("cache", [3, 1]),
    ("row", [0, 2]),
    ("row", [1, 3]),
    ("find", 0),
    ("find", 1),
    ("evict", 1),
    ("evict", 2),
)

# ---------------------------------------------------------------------- U4: equal hash, equal past


@cache
def hash_cases() -> tuple[dict[str, Any], ...]:
    """Pairs of token lists: all short ones of two tokens, then random ones; with salts, and hashed in one go or two."""
    short = [list(tokens) for length in (1, 2) for tokens in product((0, 1), repeat=length)]
    cases = [_case(1, one, other) for one, other in combinations(short, 2)]
    cases += [_case(1, [0], [0], salts) for salts in ((None, "x"), ("x", "x"), ("x", "y"))]
    cases += [_case(2, [0], [0, 1]), _case(2, [0, 1], [1, 0]), _case(2, [0, 1, 1], [0, 1, 0])]
    random = Random("lab 05")
    for _ in range(NUM_RANDOM):
        size, length = random.choice((1, 2, 3)), random.randint(2, 8)
        one = [random.randint(0, 1) for _ in range(length)]
        other = list(one)
        for _ in range(random.randint(0, 2)):
            other[random.randrange(length)] ^= 1
        salts = tuple(random.choice((None, None, "x", "y")) for _ in range(2))
        cases.append(_case(size, one, other[: random.randint(1, length)], salts, random.randint(0, length)))
    return tuple(cases)


def _case(
    size: int, one: list[int], other: list[int], salts: tuple[str | None, ...] = (None, None), before: int = 0
) -> dict[str, Any]:
    return {"block_size": size, "lists": [[one, salts[0], before], [other, salts[1], 0]]}


def expected_labels(asked: dict[str, Any]) -> list[list[int]]:
    """Equal numbers for equal pasts: the same tokens from position 0 on, and the same salt."""
    numbers: dict[Any, int] = {}
    size = asked["block_size"]
    return [
        [numbers.setdefault((salt, tuple(tokens[:end])), len(numbers)) for end in range(size, len(tokens) + 1, size)]
        for tokens, salt, _ in asked["lists"]
    ]


def check_hashes(ask: Ask) -> Outcome:
    """Two blocks have equal hashes if and only if all tokens up to their ends are equal, and the salts."""
    outcome = Outcome()
    for asked, answer in zip(hash_cases(), ask.student_many("lab05.observe:hash_labels", hash_cases()), strict=False):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        lists = [f"{tell_list(tokens)}{f' with salt {salt}' if salt else ''}" for tokens, salt, _ in asked["lists"]]
        before = asked["lists"][0][2]
        grown = f"; the first was hashed when it had {count(before, 'token')}, and again" if before else ""
        failure = evidence.unit_failure(
            answer,
            expected_labels(asked),
            case="U4",
            told=f"block size {asked['block_size']}, tokens {' and '.join(lists)}{grown}",
            size=sum(len(tokens) for tokens, _, _ in asked["lists"]),
            tell=_tell_labels,
            says="equal hash, equal past",
        )
        outcome.add(answer.mark, failure)
    return outcome


def _tell_labels(expected: list[list[int]], got: list[list[int]]) -> tuple[str, str, str]:
    for name, wanted, found in zip(("first", "second"), expected, got, strict=False):
        if len(wanted) != len(found):
            return (
                f"the {name} list",
                count(len(wanted), "full block"),
                count(len(found), "hash").replace("hashs", "hashes"),
            )
    flat_wanted, flat_found = ([n for labels in both for n in labels] for both in (expected, got))
    places = [
        f"block {i} of the {name}"
        for name, labels in zip(("first", "second"), expected, strict=True)
        for i in range(len(labels))
    ]
    for one, other in combinations(range(len(flat_wanted)), 2):
        same = flat_wanted[one] == flat_wanted[other]
        if same != (flat_found[one] == flat_found[other]):
            names = ("the same hash", "different hashes")
            return f"{places[one]} and {places[other]}", names[not same], names[same]
    return "", str(expected), str(got)


# ---------------------------------------------------------------------- U3 with hashes: the map


@cache
def map_programs() -> tuple[list[list[Any]], ...]:
    """Programs on the map, the shortest first. A block that has a hash gets no other before it is evicted."""
    found = [[list(one)] for one in OPERATIONS]
    found += [[list(one), list(other)] for one in OPERATIONS for other in OPERATIONS]
    random = Random("lab 05 map")
    found += [[list(random.choice(OPERATIONS)) for _ in range(n)] for n in (3, 4, 5, 7) for _ in range(80)]
    return tuple(program for program in found if _is_legal(program))


def _is_legal(program: list[list[Any]]) -> bool:
    try:
        observe_cache.map_program({}, {"program": program}, [])
    except AssertionError:
        return False
    return True


def check_map(ask: Ask) -> Outcome:
    """Every program leaves the same results and the same map after each operation."""
    outcome = Outcome()
    inputs = [{"program": program} for program in map_programs()]
    for asked, answer in zip(inputs, ask.student_many("lab05.observe:map_program", inputs), strict=False):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        program = asked["program"]
        expected = ask.engine("lab05.observe:map_program", asked)
        failure = evidence.unit_failure(
            answer,
            expected,
            case=f"U3, {count(len(program), 'operation')} on the map",
            told=" · ".join(_tell_operation(*operation) for operation in program),
            size=len(program),
            tell=_tell_map,
        )
        _add_place(failure, answer, program, expected)
        outcome.add(answer.mark, failure)
    return outcome


def _add_place(failure: Failure | None, answer: Observation, program: list[list[Any]], expected: list[Any]) -> None:
    if failure is not None and failure.kind in ("crash", "hang"):
        done = len(answer.seen)
        failure.where = f"operation {done + 1}, {_tell_operation(*program[done])}"
        failure.expected = _tell_map_state(expected[done])


def _tell_operation(name: str, argument: Any) -> str:
    if name == "cache":
        return f"block {argument[0]} gets hash h{argument[1]}"
    if name == "row":
        return f"blocks 1 2 3 are a table with hashes h0 h1 h2: cache from {argument[0]} to before {argument[1]}"
    return f"find h{argument}" if name == "find" else f"evict block {argument}"


def _tell_map(expected: list[Any], got: list[Any]) -> tuple[str, str, str]:
    for index, (wanted, found) in enumerate(zip(expected, got, strict=False)):
        if wanted != found:
            where = f"operation {index + 1}, {wanted[0]}"
            if wanted[1] != found[1]:
                return where, f"returns {wanted[1]}", f"returns {found[1]}"
            return where, _tell_map_state(wanted), _tell_map_state(found)
    return "", f"{len(expected)} operations", f"{len(got)}"


def _tell_map_state(entry: list[Any]) -> str:
    names = [f"h{number} → {tell_list(ids)}" for number, ids in enumerate(entry[2]["map"]) if ids]
    hashes = [f"block {i} h{n}" for i, n in enumerate(entry[2]["block_hash"]) if n is not None]
    entries = f"map {', '.join(names) or 'empty'}, {count(entry[2]['entries'], 'key')}"
    return f"{entries}; {', '.join(hashes) or 'no block has a hash'}"


# ---------------------------------------------------------------------- U5: the look-up stops at the first hole


@cache
def look_ups() -> tuple[dict[str, Any], ...]:
    """Chains of up to six blocks, of which any subset is cached."""
    cases = [
        {"block_size": size, "num_blocks": num_blocks, "extra": extra, "cached": list(cached)}
        for size, num_blocks in product((1, 2), range(LONGEST + 1))
        for extra in range(size)
        for number in range(num_blocks + 1)
        for cached in combinations(range(num_blocks), number)
    ]
    return tuple(case for case in cases if case["num_blocks"] or case["extra"])


def expected_hits(asked: dict[str, Any]) -> list[Any]:
    """Whole blocks from the first on, up to the first hole, and at most num_tokens - 1 tokens."""
    num_tokens = asked["num_blocks"] * asked["block_size"] + asked["extra"]
    hits = 0
    while hits in asked["cached"] and (hits + 1) * asked["block_size"] < num_tokens:
        hits += 1
    return [list(range(1, hits + 1)), hits * asked["block_size"]]


def check_look_up(ask: Ask) -> Outcome:
    """The longest cached prefix, whatever is cached."""
    outcome = Outcome()
    for asked, answer in zip(look_ups(), ask.student_many("lab05.observe:look_up", look_ups()), strict=False):
        if evidence.ends_the_check(answer, outcome):
            return outcome
        num_tokens = asked["num_blocks"] * asked["block_size"] + asked["extra"]
        cached = f"blocks {tell_list([i + 1 for i in asked['cached']])}" if asked["cached"] else "none"
        failure = evidence.unit_failure(
            answer,
            expected_hits(asked),
            case="U5",
            told=f"{count(num_tokens, 'token')}, block size {asked['block_size']}: its full blocks are 1 to "
            f"{asked['num_blocks']}, in the cache: {cached}",
            size=num_tokens + len(asked["cached"]),
            tell=lambda expected, got: (
                "",
                f"blocks {tell_list(expected[0])}, {count(expected[1], 'token')}",
                f"blocks {tell_list(got[0])}, {count(got[1], 'token')}" if len(got) == 2 else str(got),
            ),
            says="whole blocks, from position 0 to the first hole, at most num_tokens - 1 tokens",
        )
        outcome.add(answer.mark, failure)
    return outcome


LADDER = evidence.ladder_check()

CHECKS = {
    "5.1": (
        Check("U4", "pairs of token lists", 10, check_hashes),
        Check("ladder", "smallest workloads of vLLM", 5, LADDER),
    ),
    "5.2": (
        Check("U3", "operations on the map", 10, check_map),
        Check("ladder", "smallest workloads of vLLM", 5, LADDER),
    ),
    "5.3": (
        Check("U5", "chains with holes", 5, check_look_up),
        Check("ladder", "smallest workloads of vLLM", 5, LADDER),
    ),
    "5.4": (
        Check("ladder", "smallest workloads of vLLM", 5, LADDER),
        Check("families", "recorded decisions", 10, evidence.recorded_check("prefix", "mixed", "preempt", "hard")),
        Check("invariants", "rules on every step", 5, evidence.invariant_check("hard")),
    ),
}

# README, "Further": vLLM 0.22.0 itself breaks K2 on these four
STRETCH = (Check("known-bug", "where vLLM 0.22.0 itself reads what nobody wrote", 0, evidence.known_bug_check),)
