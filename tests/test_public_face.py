"""The public face: every name is there, and an unknown one is answered."""

from __future__ import annotations

import pytest

import hessmap as hm


@pytest.mark.parametrize("name", hm.__all__)
def test_every_public_name_can_be_had(name):
    assert getattr(hm, name) is not None
    assert name in dir(hm)


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(AttributeError, match="has no attribute 'hessian'; it has .*loss_hessian"):
        hm.hessian  # noqa: B018
