"""Memory that was written to before, kept for the next large array of its size.

A large array is given back to the system when nobody holds it any more, and a virtual machine may give it back to its
host (Linux: free page reporting). The first touch of the next one was then seen to take 1 to 4 ms a megabyte, as long
as finding the Hessian that is written there.
"""

from __future__ import annotations

import weakref
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SMALLEST = 2**25  # bytes; what is smaller is kept by the allocator
_MOST = 2**29  # bytes that are kept at once


class TouchedMemory:
    """Arrays that nobody holds any more, up to ``most`` bytes of them, the latest ones."""

    def __init__(self, smallest: int = _SMALLEST, most: int = _MOST) -> None:
        self.smallest = smallest
        self.most = most
        self._free: list[NDArray[Any]] = []
        self._lock = RLock()  # an array may be dropped while another one is taken

    @property
    def num_bytes(self) -> int:
        return sum(owner.nbytes for owner in self._free)

    def kept_bytes(self, size: int) -> int:
        """How many bytes of an array of this size stay when nobody holds it any more."""
        return size if self.smallest <= size <= self.most else 0

    def array(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """An array, not set to anything, which must be given to ``torch.from_numpy`` and not be seen otherwise: numpy's
        own views of it would not keep it from being used again."""
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        if not self.kept_bytes(size):
            return np.empty(shape, dtype)
        owner = self._taken(size)
        owner = np.empty(size, np.uint8) if owner is None else owner
        seen: NDArray[Any] = owner.view(dtype).reshape(shape)
        weakref.finalize(seen, self._keep, owner).atexit = False
        return seen

    def give_back(self) -> None:
        """Let go of all of it."""
        with self._lock:
            self._free.clear()

    def _taken(self, size: int) -> NDArray[Any] | None:
        with self._lock:
            for place in reversed(range(len(self._free))):
                if self._free[place].nbytes == size:
                    return self._free.pop(place)
        return None

    def _keep(self, owner: NDArray[Any]) -> None:
        with self._lock:
            self._free.append(owner)
            while self.num_bytes > self.most:
                self._free.pop(0)


touched_memory = TouchedMemory()
