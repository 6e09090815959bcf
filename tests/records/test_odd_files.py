"""Files and texts that are not what they should be: one sentence, and nothing in them is run."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hessmap.datasets import gaussian_mixture
from hessmap.errors import DataFileError, HessmapError, InvalidInput
from hessmap.maps.curvature_map import curvature_map
from hessmap.networks import FullyConnected
from hessmap.records import Record
from hessmap.training import load_checkpoint, save_checkpoint, train
from run_marker import Marker

DATA = gaussian_mixture(30, 4, num_classes=3, separation=2.0)
ODD_VALUES = [None, "text", -1, 1e308, True, [], {}, [1, "a"], {"float": "x"}, {"float": "nan"}, {"fraction": "1/0"},
              {"fraction": "1e1000000000"}, {"array": [1], "shape": [2], "dtype": "float64"}, {"record": "Spectrum"},
              {"array": ["a"], "shape": [1], "dtype": "O"}, {"array": [1], "shape": [1], "dtype": "f8,f8"},
              {"array": [[1, 2], [3]], "shape": [2], "dtype": "float64"}, {"record": ["a"]},
              {"record": {}}]  # fmt: skip


@pytest.fixture(scope="module")
def written() -> dict[str, Any]:
    made: dict[str, Any] = curvature_map(FullyConnected((4, 3, 3)).build(seed=0), DATA, "squared").to_dict()
    return made


def places(content: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where values stand in nested JSON, every list by its first entry."""
    items = content.items() if isinstance(content, dict) else enumerate(content[:1])
    found = [(*path, name) for name, _ in items]
    inner = [(name, value) for name, value in items if isinstance(value, dict | list)]
    return found + [place for name, value in inner for place in places(value, (*path, name))]


def put(content: dict[str, Any], place: tuple[Any, ...], value: Any) -> str:
    changed = json.loads(json.dumps(content))
    here = changed
    for name in place[:-1]:
        here = here[name]
    here[place[-1]] = value
    return json.dumps(changed)


def test_a_record_with_an_odd_value_anywhere_is_read_or_refused_in_a_sentence(written: dict[str, Any]) -> None:
    """Two odd values at each of its places, in turn: whatever a constructor makes of them, no raw error comes out."""
    everywhere = places(written)
    assert len(everywhere) > 150
    refused = 0
    for number, place in enumerate(everywhere):
        for value in (ODD_VALUES[number % len(ODD_VALUES)], ODD_VALUES[(7 * number + 3) % len(ODD_VALUES)]):
            try:
                Record.from_json(put(written, place, value))
            except HessmapError:
                refused += 1
    assert refused > 50


@pytest.mark.parametrize("value", [{"array": [1], "shape": [1], "dtype": "O"}, {"fraction": "1e1000000000"}])
def test_numbers_of_other_kinds_are_refused(written: dict[str, Any], value: Any) -> None:
    with pytest.raises(InvalidInput, match="must contain real numbers|of two whole numbers"):
        Record.from_json(put(written, ("title",), value))


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"record": ["Spectrum"]}', "[]", "NaN", '{"record": 1}'])
def test_a_text_that_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(HessmapError, match="record"):
        Record.from_json(text)


ODD_STATES: dict[str, Callable[[dict[str, Any]], None]] = {
    "no model": lambda state: state.pop("model"),
    "no history": lambda state: state.pop("history"),
    "a history of numbers": lambda state: state.update(history=[1, 2]),
    "an epoch of text": lambda state: state.update(epoch="two"),
    "an epoch of a fraction": lambda state: state.update(epoch=2.5),
    "an order of numbers": lambda state: state.update(order=[1, 2]),
    "an order of another length": lambda state: state.update(order=torch.zeros(3, dtype=torch.uint8)),
    "an optimiser of text": lambda state: state.update(optimiser="sgd"),
    "weights of another shape": lambda state: state["model"].update({"0.weight": torch.zeros(1)}),
    "weights of text": lambda state: state.update(model={"0.weight": "a"}),
}


@pytest.mark.parametrize("name", ODD_STATES)
def test_a_checkpoint_with_odd_content_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "training.pt"
    architecture = FullyConnected((4, 3, 3))
    train(architecture.build(seed=0), DATA, epochs=2, checkpoint=path)
    state = load_checkpoint(path)
    ODD_STATES[name](state)
    save_checkpoint(path, state)
    random_state = torch.get_rng_state()
    with pytest.raises(DataFileError, match=r"must contain a training under way; .*training\.pt does not"):
        train(architecture.build(seed=0), DATA, epochs=4, checkpoint=path)
    assert torch.equal(random_state, torch.get_rng_state())


def test_a_pickle_in_the_place_of_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "training.pt"
    for content in (pickle.dumps(Marker(tmp_path / "was-run")), np.random.default_rng(0).bytes(300)):
        path.write_bytes(content)
        with pytest.raises(DataFileError, match="a checkpoint must be readable"):
            load_checkpoint(path)
    torch.save({"model": Marker(tmp_path / "was-run")}, path)
    with pytest.raises(DataFileError, match="a checkpoint must be readable"):
        load_checkpoint(path)
    assert not (tmp_path / "was-run").exists()
