"""The generators: the same seed gives the same workloads, and every workload ends."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from proof.lockstep.recordings import FOLDER, recording

from minivllm.errors import InputError
from minivllm.proof.lockstep import replay_sampler, replay_scheduler
from minivllm.proof.lockstep.batches import generate_batches, make_batch
from minivllm.proof.lockstep.compare import first_difference
from minivllm.proof.lockstep.recording import Recording, load, save
from minivllm.proof.lockstep.scenarios import FAMILIES as SCENARIO_FAMILIES
from minivllm.proof.lockstep.scenarios import generate_scenarios
from minivllm.proof.lockstep.workloads import FAMILIES, generate_workloads, make_workload


@pytest.mark.parametrize("generate", [generate_workloads, generate_batches, generate_scenarios])
def test_a_seed_gives_the_same_workloads_again_and_another_seed_others(generate: Any) -> None:
    first, again, other = generate(5, 2), generate(5, 2), generate(6, 2)
    assert first == again
    both = [json.dumps(workload) for workload in first.workloads + other.workloads]
    assert len(set(both)) == len(both)


def test_more_of_a_seed_begins_with_the_same() -> None:
    assert generate_batches(5, 4).workloads[:2] == generate_batches(5, 2).workloads


@pytest.mark.parametrize(("seed", "count"), [(-1, 1), (0, 0), (0, 1001)])
def test_a_seed_or_count_out_of_range_is_refused(seed: int, count: int) -> None:
    with pytest.raises(InputError, match="--generate"):
        generate_workloads(seed, count)


def test_what_is_generated_comes_back_from_a_file(tmp_path: Path) -> None:
    for recorded in (generate_workloads(1, 1), generate_batches(1, 3), generate_scenarios(1, 1)):
        for name in ("a.json", "b.json.gz"):
            save(tmp_path / name, recorded)
            assert load(tmp_path / name) == recorded


def test_every_family_was_recorded() -> None:
    recorded = set(recording("vllm-0.22.0-scheduler-more.json.gz").families())
    assert recorded == set(FAMILIES)
    assert set(recording("vllm-0.22.0-engine-more.json.gz").families()) == set(SCENARIO_FAMILIES)


def test_files_are_small() -> None:
    assert {
        path.name: path.stat().st_size for path in FOLDER.glob("*-more.json.gz") if path.stat().st_size > 150_000
    } == {}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_workload_ends(family: str) -> None:
    """tests/core/test_scheduler_properties.py looks at every step on the way."""
    for workload in generate_workloads(3, 5, [family]).workloads:
        said = {request["id"]: 0 for request in workload["requests"]}
        for step in replay_scheduler(workload):
            for output in step["outputs"]:
                said[output["id"]] += len(output["new_token_ids"])
        assert sum(said.values()) > 0


@pytest.mark.parametrize("number", range(40))
def test_a_row_is_the_same_in_any_company(number: int) -> None:
    case = make_batch(Random(number))
    together = replay_sampler(case)
    for row, result in zip(case["rows"], together, strict=True):
        (alone,) = replay_sampler({"rows": [row]})
        assert first_difference("sampler", {"rows": [row | alone]}, [result]) is None


def test_a_workload_needs_no_other_source_of_randomness() -> None:
    assert make_workload(Random(3), "hard") == make_workload(Random(3), "hard")


def test_the_numbers_of_workloads_do_not_depend_on_their_source() -> None:
    assert Recording("scheduler", "x", generate_workloads(2, 1, ["hard"]).workloads).names() == ["hard-2000"]
