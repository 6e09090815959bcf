"""Maps in the store: by name, whole or not at all, readable for any client, with their options as data."""

from __future__ import annotations

import shlex
import sqlite3
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
import typer

from hessmap.cli import app
from hessmap.errors import InvalidInput, UnknownName
from hessmap.maps.curvature_map import curvature_map
from hessmap.networks import FullyConnected
from hessmap.records import CurvatureMap
from hessmap.records.store import MapOptions, Store, StoreError, add_map, free_name, load_map, map_summaries


@pytest.fixture(scope="module")
def made() -> CurvatureMap:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(20, 4, generator=generator, dtype=torch.float64)
    targets = torch.randint(2, (20,), generator=generator)
    return curvature_map(FullyConnected((4, 3, 2), activation="relu").build(seed=0), (inputs, targets), title="a title")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "hessmap.sqlite"


def test_a_map_comes_back_as_it_was(path: Path, made: CurvatureMap) -> None:
    with Store(path, create=True) as store:
        add_map(store, "run1", made, MapOptions(name="run1", widths="4-3-2"))
    with Store(path) as store:
        stored = load_map(store, "run1")
        (summary,) = map_summaries(store)
    assert (stored.name, stored.options, stored.record) == ("run1", MapOptions(name="run1", widths="4-3-2"), made)
    assert stored.command == summary.command == "hessmap map --widths=4-3-2 --name=run1"
    assert made.provenance is not None
    assert stored.record.provenance == made.provenance
    assert (summary.title, summary.network, summary.num_parameters) == ("a title", "4-3-2 relu", 18)
    assert (summary.created, summary.data_hash) == (made.provenance.created, made.provenance.data_hash)
    assert summary.risk == made.network.risk


def test_a_taken_name_is_refused_and_what_is_stored_stays(path: Path, made: CurvatureMap) -> None:
    with Store(path, create=True) as store:
        add_map(store, "run1", made)
        with pytest.raises(InvalidInput, match="a unique name; .* has 'run1' of .* give --replace"):
            add_map(store, "run1", replace(made, title="another"))
        assert load_map(store, "run1").record.title == "a title"
        add_map(store, "run1", replace(made, title="another"), replace=True)
        assert [summary.title for summary in map_summaries(store)] == ["another"]


def test_a_replacement_that_fails_leaves_the_old_map(path: Path, made: CurvatureMap) -> None:
    with Store(path, create=True) as store:
        add_map(store, "run1", made)
        store.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON map BEGIN SELECT raise(ABORT, 'refused by a trigger'); END"
        )
        with pytest.raises(StoreError, match="refused by a trigger"):
            add_map(store, "run1", replace(made, title="another"), replace=True)
        assert load_map(store, "run1").record.title == "a title"


def test_a_free_name_is_the_wish_or_the_wish_with_a_number(path: Path, made: CurvatureMap) -> None:
    with Store(path, create=True) as store:
        for name in ("now", "now-2"):
            assert free_name(store, "map", "now") == name
            add_map(store, name, made)
        assert free_name(store, "map", "now") == "now-3"


def test_a_name_that_nobody_knows_is_met_with_the_near_ones(path: Path, made: CurvatureMap) -> None:
    with Store(path, create=True) as store:
        with pytest.raises(InvalidInput, match=r"stored before it is shown; .* has none\. Run hessmap map"):
            load_map(store, "run1")
        add_map(store, "run1", made)
        with pytest.raises(UnknownName, match="map must be one of run1; got 'run2'. Did you mean 'run1'"):
            load_map(store, "run2")


def test_a_map_without_provenance_or_with_an_infinite_risk_is_stored(path: Path, made: CurvatureMap) -> None:
    with Store(path, create=True) as store:
        add_map(store, "bare", replace(made, provenance=None, network=replace(made.network, risk=float("nan"))))
        (summary,) = map_summaries(store)
    assert (summary.risk, summary.data_hash) == (None, "")
    assert summary.created


def test_any_client_can_read_the_views_of_maps(path: Path, made: CurvatureMap) -> None:
    with Store(path, create=True) as store:
        add_map(store, "run1", made, MapOptions(seed=3))
    client = sqlite3.connect(path)
    read = client.execute("SELECT name, network, loss, num_samples, options ->> 'seed', torch FROM maps").fetchall()
    query = "SELECT map, layer, shape, rank, top_eigenvalue, curvature_share FROM map_layers"
    layers = client.execute(query).fetchall()
    client.close()
    assert read == [("run1", "4-3-2 relu", "cross_entropy", 20, 3, torch.__version__)]
    assert layers == [
        ("run1", layer.name, layer.shape, layer.rank.value, layer.top_eigenvalue, layer.curvature_share)
        for layer in made.network.layers
    ]


def test_maps_that_were_made_alike_share_a_provenance(path: Path, made: CurvatureMap) -> None:
    with Store(path, create=True) as store:
        add_map(store, "run1", made)
        add_map(store, "run2", made)
        assert store.execute("SELECT count(*) FROM provenance") == [(1,)]


OPTIONS = (
    MapOptions(),
    MapOptions(model="my_models:net", data="my_data:train", loss="squared", seconds=300.5, dense=False),
    MapOptions(data="mnist", side=8, samples=2000, bias=True, certify=True, dense=True),
    MapOptions(widths="64-16-10", activation="tanh", epochs=0, seed=2**62, certify=False, name="a b; touch x #"),
    MapOptions(name="--help", data="$(reboot)", loss="'", activation="\n"),
    MapOptions(model="-x:y", name="名前"),
)


@pytest.mark.parametrize("options", OPTIONS)
def test_options_come_back_and_their_command_gives_the_same_options(
    path: Path, made: CurvatureMap, options: MapOptions
) -> None:
    """The command is read here as a shell and the program would read it."""
    with Store(path, create=True) as store:
        add_map(store, "run1", made, options)
        assert load_map(store, "run1").options == options
        assert map_summaries(store, "run1")[0].options == options
    program, group, *words = shlex.split(options.command)
    assert (program, group) == ("hessmap", "map")
    given = typer.main.get_group(app).commands["map"].make_context("map", words).params
    assert MapOptions(**{name: given[name] for name in asdict(options)}) == options


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 9000,
        '{"a":' * 3000,
        "[]",
        "7",
        '"hessmap map --help"',
        '{"seed": "0"}',
        '{"seed": ' + "9" * 5000 + "}",
        '{"epochs": true}',
        '{"data": null}',
        '{"model": ["os:system"]}',
        '{"store": "/etc/passwd"}',
        b"\xff\xfe\x00",
        3.5,
    ],
)
def test_options_that_are_none_are_refused_with_the_name_of_their_map(
    path: Path, made: CurvatureMap, text: object
) -> None:
    with Store(path, create=True) as store:
        add_map(store, "odd one", made)
        add_map(store, "sound", made)
        store.execute("UPDATE map SET options = ? WHERE name = 'odd one'", (text,))
        for read in (lambda: load_map(store, "odd one"), lambda: map_summaries(store)):
            with pytest.raises(StoreError, match="is damaged .*'odd one': ") as error:
                read()
            assert len(str(error.value)) < 1000
        refused: list[str] = []
        assert [summary.name for summary in map_summaries(store, refused=refused)] == ["sound"]
        assert len(refused) == 1
        assert load_map(store, "sound").options is None


@pytest.mark.parametrize("options", ["hessmap map --help", {"seed": 3}, 7])
def test_options_of_another_type_are_refused_and_nothing_is_stored(
    path: Path, made: CurvatureMap, options: object
) -> None:
    with Store(path, create=True) as store:
        with pytest.raises(InvalidInput, match="must be MapOptions or None"):
            add_map(store, "run1", made, options)  # type: ignore[arg-type]
        assert map_summaries(store) == ()
