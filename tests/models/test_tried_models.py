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
# Beside those whose name says so: what is done to them cannot be differentiated in float64, and the sentence says why.
REFUSED = {
    "mamba, causal language model": "float64",
    "rwkv, causal language model": "must leave the weights as they are",
}


@pytest.mark.parametrize("name", TRIED)
def test_a_model_is_right_or_refused(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the packages
        row = measure(name)
    if row["outcome"] == "not installed":
        pytest.skip(row["why"])
    is_refused = name in REFUSED or "(refused)" in name or "looks across samples" in name
    assert row["outcome"] == ("refused" if is_refused else "right"), row
    assert REFUSED.get(name, "") in row.get("why", ""), row


def test_the_table_has_sixty_models():
    assert len(TRIED) >= 60
