"""Memory that is used again is nobody's: what anybody still sees is never handed out."""

from __future__ import annotations

import gc

import numpy as np
import torch

from hessmap.linalg import memory
from hessmap.linalg.memory import TouchedMemory


def test_memory_that_nobody_holds_is_used_again():
    kept = TouchedMemory(smallest=8, most=2**20)
    first = torch.from_numpy(kept.array((4, 5), np.float64))
    place = first.data_ptr()
    del first
    assert kept.num_bytes == 160
    again = torch.from_numpy(kept.array((20,), np.float64))
    assert again.data_ptr() == place
    assert kept.num_bytes == 0


def test_memory_of_another_size_is_not_taken():
    kept = TouchedMemory(smallest=8, most=2**20)
    first = torch.from_numpy(kept.array((40,), np.float64))
    del first
    smaller = torch.from_numpy(kept.array((20,), np.float64))
    assert smaller.shape == (20,)
    assert kept.num_bytes == 320


def test_whoever_still_sees_it_keeps_it():
    kept = TouchedMemory(smallest=8, most=2**20)
    for seen_through in (
        lambda given: given[1:, 2:],
        lambda given: given.T.flatten(),
        lambda given: given.numpy(),
        lambda given: given.numpy()[2:, ::2].T,
        lambda given: np.asarray(given)[1],
        lambda given: torch.from_numpy(given.numpy())[3],
        lambda given: memoryview(given.numpy()),
        lambda given: torch.from_dlpack(given),
        lambda given: given.untyped_storage(),
        lambda given: torch.nn.Parameter(given).detach().view(2, 10),
    ):
        whole = torch.from_numpy(kept.array((4, 5), np.float64))
        whole.fill_(1.0)
        start, stop = whole.data_ptr(), whole.data_ptr() + whole.nbytes
        held = seen_through(whole)
        del whole
        gc.collect()
        others = [torch.from_numpy(kept.array((4, 5), np.float64)).fill_(2.0) for _ in range(2)]
        aliases = [other for other in others if start <= other.data_ptr() < stop]
        is_copy = isinstance(held, torch.Tensor) and not start <= held.data_ptr() < stop
        assert is_copy or not aliases
        del held, others, aliases


def test_no_more_is_kept_than_allowed_and_all_of_it_is_given_back():
    kept = TouchedMemory(smallest=8, most=1000)
    arrays = [torch.from_numpy(kept.array((size,), np.float64)) for size in (40, 50, 60, 200)]
    while arrays:
        arrays.pop(0)
    assert kept.num_bytes == 8 * (50 + 60)
    kept.give_back()
    assert kept.num_bytes == 0


def test_memory_that_is_asked_for_is_not_kept_from(monkeypatch):
    kept = TouchedMemory(smallest=8, most=2**20)
    torch.from_numpy(kept.array((100,), np.float64))
    assert kept.num_bytes == 800
    monkeypatch.setattr(memory, "touched_memory", kept)
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000 - kept.num_bytes)
    memory.require_memory("a matrix", 900, "Use less")
    assert kept.num_bytes == 0
