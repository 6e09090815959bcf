"""The public face: every name is there, and an unknown one is answered."""

from __future__ import annotations

import ast
import importlib
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
    packages = dict.fromkeys(hm._PACKAGES, "hessmap")
    assert found == {name: f"hessmap.{home}" for name, home in hm._HOME_OF.items()} | packages


def test_the_top_holds_what_is_needed_first():
    assert len(hm._HOME_OF) <= 60
    assert not set(hm._HOME_OF) & set(hm._PACKAGES)


@pytest.mark.parametrize("name", hm._PACKAGES)
def test_every_package_lists_what_it_has(name):
    package = getattr(hm, name)
    listed = getattr(package, "__all__", None)
    assert name == "errors" or listed
    assert [one for one in listed or () if not hasattr(package, one)] == []


@pytest.mark.parametrize("name", sorted(hm._HOME_OF))
def test_the_home_of_a_name_lists_it(name):
    home = importlib.import_module(f"hessmap.{hm._HOME_OF[name]}")
    assert getattr(hm, name) is getattr(home, name)
    assert name in getattr(home, "__all__", [name])


def test_everything_public_is_in_the_library():
    """Names of the other packages are imported from there."""
    for name in hm.__all__:
        found = getattr(hm, name)
        assert (getattr(found, "__module__", None) or found.__name__).split(".")[0] == "hessmap", name


@pytest.mark.parametrize("name", ["toeplitz_layer", "zoo_network", "train_to_stationary_point", "auto_spectrum"])
def test_names_that_moved_away_are_not_at_the_top(name):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
        getattr(hm, name)
