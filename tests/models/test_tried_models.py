"""Every model of the table: right or refused with a sentence, never wrong and never a raw traceback."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).parents[2] / "benchmarks"), str(Path(__file__).parents[2] / "benchmarks" / "models")]

from architectures import TRIED
from tried import measure

pytestmark = pytest.mark.models


@pytest.mark.parametrize("name", TRIED)
def test_a_model_is_right_or_refused(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the packages
        row = measure(name)
    if row["outcome"] == "not installed":
        pytest.skip(row["why"])
    wanted = "refused" if "(refused)" in name or "looks across samples" in name else "right"
    assert row["outcome"] == wanted, row


def test_the_table_has_sixty_models():
    assert len(TRIED) >= 60
