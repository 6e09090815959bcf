"""research/docs/studies.md: its example is run as it stands, and what it says about the store is there."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from hessmap_research.runner.collection import study_collection
from hessmap_research.runner.registry import find
from hessmap_research.runner.run import run
from hessmap_research.runner.store import StudyStore
from hessmap_research.views.table import study_table

TEXT = (Path(__file__).parents[2] / "docs" / "studies.md").read_text()


def test_the_example_runs_as_it_stands_and_its_formula_holds(
    tmp_path: Path, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = re.search(r"```python\n(\"\"\".*?)```", TEXT, re.DOTALL)
    assert example is not None
    (tmp_path / "example_of_the_manual.py").write_text(example.group(1))
    monkeypatch.syspath_prepend(tmp_path)
    address = "example_of_the_manual:STUDY"
    summary = run(address, store_path, engine="inline")
    assert summary.failures == ()
    collection = study_collection(find(address), store_path)
    assert collection.outcome.sentence == "6 of 6 cases agree with the prediction."
    table = study_table(collection)
    assert table.labels == ("width", "seed", "predicted", "measured", "measured gap")
    assert all(line[2] == line[3] for line in table.lines)


def test_every_table_view_and_column_that_is_documented_exists(store_path: Path) -> None:
    StudyStore(store_path, create=True).close()
    client = sqlite3.connect(store_path)
    names = [name for (name,) in client.execute("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')")]
    assert {"study", "result", "map", "provenance", "overview", "readable", "failures", "maps"} < set(names)
    for name in names:
        assert f"`{name}" in TEXT, name
        for _, column, *_ in client.execute(f"PRAGMA table_info({name})"):
            if name in ("study", "result", "map") and column not in ("id", "study_id"):
                assert f"`.{column}`" in TEXT, column
    queries = re.findall(r"```sql\n(.*?)```", TEXT, re.DOTALL)
    assert len(queries) == 2
    for query in queries:
        assert client.execute(query).fetchall() == []
    client.close()
