"""How many examples a property is tried with: those of the hypothesis profile, or a share of them.

The profile is chosen in the conftest of the project ("quick" by default, "long" by ``--hypothesis-profile=long``). A
test states a share where an example takes long, or where the cases that matter are rare among cheap ones.
"""

from __future__ import annotations

from hypothesis import settings

FEWEST = 10


def share_of_examples(share: float) -> settings:
    """The profile's number of examples times a share, at least ten."""
    return settings(max_examples=max(FEWEST, round(share * settings().max_examples)))
