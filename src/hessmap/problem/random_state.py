"""The random states of python, numpy and torch: borrowed for a moment, and put back as they were.

They belong to the process. A lock keeps threads of hessmap from borrowing them at the same time, because the second one
would take the first one's state for the user's.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch

from hessmap.linalg import device_random_states, restore_device_random_states, seed_devices

_LOCK = threading.RLock()
_Item = TypeVar("_Item")


@contextmanager
def preserved_random_state(seed: int | None = None, *generators: torch.Generator | None) -> Iterator[None]:
    """Context that restores the global random states, and those of generators, when it is left.

    Args:
        seed: Seed of the global states inside. Defaults to None: they continue.
        generators: Further generators to restore.

    Returns:
        A context manager.
    """
    own = [generator for generator in generators if generator is not None]
    with _LOCK:
        before = _states(own)
        try:
            if seed is not None:
                _seed_all(seed, own)
            yield
        finally:
            _restore(before, own)


def iterate_seeded(items: Iterable[_Item], seed: int, *generators: torch.Generator | None) -> Iterator[_Item]:
    """The items of an iterable that may draw random numbers, as they are under a seed.

    The seeded states are in place while an item is fetched, the user's whenever the caller has the word.
    """
    own = [generator for generator in generators if generator is not None]
    inner: Any = None
    iterator: Iterator[_Item] | None = None
    while True:
        with _LOCK:
            before = _states(own)
            try:
                if iterator is None:
                    _seed_all(seed, own)
                    iterator = iter(items)
                else:
                    _restore(inner, own)
                item = next(iterator)
                inner = _states(own)
            except StopIteration:
                return
            finally:
                _restore(before, own)
        yield item


def _states(generators: list[torch.Generator]) -> Any:
    numpy_state = np.random.get_state()  # noqa: NPY002 - the global one is meant
    own = [generator.get_state() for generator in generators]
    return random.getstate(), numpy_state, torch.get_rng_state(), own, device_random_states()


def _restore(states: Any, generators: list[torch.Generator]) -> None:
    python_state, numpy_state, torch_state, own, of_devices = states
    random.setstate(python_state)
    np.random.set_state(numpy_state)  # noqa: NPY002
    torch.set_rng_state(torch_state)
    restore_device_random_states(of_devices)
    for generator, state in zip(generators, own, strict=True):
        generator.set_state(state)


def _seed_all(seed: int, generators: list[torch.Generator]) -> None:
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.default_generator.manual_seed(seed)
    seed_devices(seed)
    for generator in generators:
        generator.manual_seed(seed)
