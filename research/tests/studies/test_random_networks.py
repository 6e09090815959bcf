"""The loop over random networks: stored batches come out again, and its counts see what is wrong."""

from __future__ import annotations

import pytest
from committed import committed

from hessmap.records.record import decode, encode
from hessmap_research.runner.registry import find, listing
from hessmap_research.runner.row import Row
from hessmap_research.studies.random_networks import (
    OURS,
    Compared,
    Counted,
    Drawn,
    at_most,
    count,
    count_all,
    counterexamples,
    equal,
)

NAMES = [one.name for one in listing() if one.module.startswith("hessmap_research.studies.random_networks.")]
# What is claimed of these networks has been sharpened since they were run; what was drawn, and that it holds, stays.
SHARPENED = {"cnn/claims": ("held", "counterexamples")}
COMPARED = (
    Compared(Drawn("a", {"input_rank": 2}), {"loss": 3, "functional": 4}, {OURS: {"loss": 3, "functional": 5}}),
    Compared(Drawn("b"), {"loss": 3, "functional": 4}, {OURS: {"loss": (1, 3), "functional": 4}}),
    Compared(Drawn("c"), {"loss": 3, "functional": 4}, {OURS: {"loss": 2, "functional": 4}}),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_batch_is_measured_again(name: str) -> None:
    study = find(name)
    for row in committed(name).stored.rows[:: max(1, len(committed(name).stored.rows) // 2)][:2]:
        again = decode(encode(study.measure(row.case)))
        for field in SHARPENED.get(name, row.record):
            assert encode({field: again[field]}) == encode({field: row.record[field]}), field


def test_there_are_fourteen_of_them() -> None:
    assert len(NAMES) == 14


def test_networks_are_counted_by_part_and_together() -> None:
    assert count(equal)(COMPARED) == {"loss": 2, "functional": 2}
    assert count(at_most)(COMPARED[::2]) == {"loss": 1, "functional": 2}
    assert count_all(equal)(COMPARED) == 1


def test_a_counterexample_has_the_network_its_data_and_both_values() -> None:
    first, second = counterexamples(equal)(COMPARED)
    data = {"input_rank": 2, "side": OURS, "part": "functional"}
    assert first == {"network": "a", **data, "exact": 4, "claim": 5}
    assert second == {"network": "c", "side": OURS, "part": "loss", "exact": 3, "claim": 2}


@pytest.mark.parametrize(("right", "holds"), [(5, True), (4, False), (0, False)])
def test_a_counted_claim_needs_every_network_of_its_rows(right: int, holds: bool) -> None:
    rows = [Row({"kind": kind, "num_networks": 5}, {"held": held}) for kind, held in (("a", right), ("b", 1))]
    claim = Counted(
        "all", "All are right", "held", where={"kind": "a"}, detail="{right} and {also}", beside={"also": "held"}
    )
    (found,) = claim(rows)
    assert (found.holds, found.detail) == (holds, f"{right} and {right}")
