"""The public face: every name is there, and an unknown one is answered."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import hessmap as hm


@pytest.mark.parametrize("name", hm.__all__)
def test_every_public_name_can_be_had(name):
    assert getattr(hm, name) is not None
    assert name in dir(hm)


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(AttributeError, match="has no attribute 'hessian'; it has .*loss_hessian"):
        hm.hessian  # noqa: B018


def test_the_imports_for_type_checkers_are_the_list():
    tree = ast.parse(Path(hm.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    found = {node.names[0].name: node.module for node in block.body if isinstance(node, ast.ImportFrom)}
    rooms = dict.fromkeys(hm._ROOMS, "hessmap")
    assert found == {name: f"hessmap.{home}" for name, home in hm._HOME_OF.items()} | rooms


def test_the_top_holds_what_is_needed_first():
    assert len(hm._HOME_OF) <= 40
    assert not set(hm._HOME_OF) & set(hm._ONE_LEVEL_DOWN)


@pytest.mark.parametrize("name", sorted(hm._ONE_LEVEL_DOWN))
def test_names_that_moved_down_are_found_and_not_listed(name):
    assert getattr(hm, name) is not None
    assert name not in hm.__all__
