"""A worker process: takes keys from a pipe, sends outcomes back one by one, and never outlives its parent.

Started by `processes` with the arguments ``CONNECTION LIFELINE PARENT``: two inherited file
descriptors and the process id of the parent. The lifeline is a pipe that nobody writes to: it closes when the parent
is gone, however it went.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections import deque
from multiprocessing.connection import Connection

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    connection, lifeline, parent = Connection(int(arguments[0])), int(arguments[1]), int(arguments[2])
    _die_with(parent, lifeline)
    try:
        _serve(connection)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the parent is gone or has closed the pipe: there is nobody to tell


def _die_with(parent: int, lifeline: int) -> None:
    if sys.platform == "linux":
        # Even a worker that is deep in C code and holds the interpreter is killed by the kernel.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before prctl was called
        os._exit(1)
    threading.Thread(target=_wait_for_end, args=(lifeline,), daemon=True).start()


def _wait_for_end(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(1)


def _serve(connection: Connection) -> None:
    path, address, models = connection.recv()
    sys.path[:] = path
    from hessmap_research.runner.engines.case import case_outcome
    from hessmap_research.runner.model_cache import use_models_folder
    from hessmap_research.runner.registry import find

    use_models_folder(models)
    study = find(address)
    connection.send("ready")
    waiting: deque[str] = deque()
    while True:
        if not waiting or connection.poll():
            keys = connection.recv()
            if keys is None:
                return
            waiting.extend(keys)
            continue
        connection.send(case_outcome(study, waiting.popleft()))


if __name__ == "__main__":
    main(sys.argv[1:])
