"""Tables of studies: every line says what it is about, in every part, and what is left out is left out evenly."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from committed import committed
from rich.console import Console

from hessmap.views.tables.contents import Table, column_parts
from hessmap_research.runner.claims import Claim, StudyOutcome
from hessmap_research.runner.collection import Collection, StoredRecords
from hessmap_research.runner.registry import listing
from hessmap_research.studies import Column, Row, Study, View
from hessmap_research.views.table import study_table
from hessmap_research.views.text import outcome_view

RESULTS = Path(__file__).parents[2] / "results"
NAMES = sorted(listed.name for listed in listing())


def table_of(cases: list[dict[str, Any]], *columns: Column | str, most: int | None = None, **view: Any) -> Table:
    rows = tuple(Row(case, {"rank": place}) for place, case in enumerate(cases))
    study = Study("a/b", "Does it hold?", "none", (), lambda case: {}, View((), columns, **view))
    return study_table(Collection(study, StoredRecords(rows, (), ()), "a test", Path("a.json")), most)


def num_told_apart(table: Table, columns: list[int]) -> int:
    return len({tuple(line[place] for place in columns) for line in table.lines})


def test_a_field_of_some_cases_is_a_key_and_one_that_never_changes_is_none() -> None:
    cases: list[dict[str, Any]] = [{"data": "digits", "point": "saddle"}, {"data": "digits", "point": "minimum"}]
    table = table_of([*cases, {"data": "digits"}], "data", "point", "rank")
    assert table.keys == [1]
    assert table_of(cases[:1], "data", "point", "rank").keys == [0, 1]
    grouped = table_of([*cases, {"data": "mnist", "point": "saddle"}], "data", "point", "rank", group_by=("data",))
    assert grouped.keys == [0]


def test_words_of_records_can_be_said_otherwise() -> None:
    assert table_of([{"size": "long"}, {"size": "short"}], Column("size", said={"long": "all images"})).lines == (
        ("all images",),
        ("short",),
    )


@pytest.mark.parametrize("name", NAMES)
def test_no_two_lines_of_a_study_are_about_the_same(name: str) -> None:
    table = study_table(committed(name))
    assert num_told_apart(table, table.keys) == len(table.lines)
    for part in column_parts(table, 80):
        assert num_told_apart(table, [place for place in part if place in table.keys]) == len(table.lines)


def test_wide_keys_that_the_others_make_up_for_are_not_repeated() -> None:
    lines = tuple((f"a long name of {place}", f"n{place}", "1234567", "1234567") for place in range(3))
    table = Table(("name", "n", "x", "y"), lines, (False, False, True, True), (True, True, False, False))
    assert column_parts(table, 80) == [[0, 1, 2, 3]]
    assert column_parts(table, 30) == [[0, 1, 2], [1, 3]]


def test_of_many_lines_some_of_each_kind_are_shown() -> None:
    cases = [{"network": net, "n": n} for net in ("linear", "relu") for n in range(50)]
    table = table_of(cases, "network", "n", "rank", most=10)
    assert [line[0] for line in table.lines] == ["linear"] * 5 + ["relu"] * 5
    assert table.num_left_out == 90
    assert [int(line[2]) for line in table.lines] == sorted(int(line[2]) for line in table.lines)
    assert len({line[1] for line in table.lines}) == 10
    assert table_of(cases, "network", "n", most=200).num_left_out == 0


def test_a_long_study_shows_every_activation_loss_and_data_set() -> None:
    found = committed("cnn/rank-vs-filter")
    lines = study_table(found, 40).lines
    kinds = {(line[0], "relu" in line[1], line[2]) for line in lines}
    assert {data for data, _, _ in kinds} == set(found.study.data)
    assert {(relu, loss) for _, relu, loss in kinds} == {
        (relu, loss) for relu in (False, True) for loss in ("squared", "cross_entropy")
    }


def test_what_fails_is_said_before_what_agrees() -> None:
    claims = (
        Claim("grow", "widths grow", True),
        Claim("shrink", "widths shrink", False, "they do not"),
        Claim("stay", "or stay", None),
    )
    file = StringIO()
    Console(file=file, width=80).print(outcome_view(StudyOutcome("a/b", 3, 3, 0, 0, 0, claims=claims)))
    lines = file.getvalue().splitlines()
    assert lines[0] == "  does not hold: widths shrink (they do not)"
    assert lines[1].startswith("3 of 3 cases agree with the prediction, 1 of 3 claims hold")
    assert lines[2:] == ["  holds: widths grow", "  inconclusive: or stay"]
