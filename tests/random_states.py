"""The global random states that no function may move: of python, of numpy, of torch."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def states() -> tuple[Any, ...]:
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002 - the global one is meant
    return random.getstate(), (kind, keys.tobytes(), *rest), torch.get_rng_state().numpy().tobytes()
