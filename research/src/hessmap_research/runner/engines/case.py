"""Carrying out one case, wherever it runs: it always ends in an outcome."""

from __future__ import annotations

import functools
import json
import os
import sys
import time
import traceback

from hessmap.errors import InvalidInput, sentence
from hessmap.records import encode, provenance
from hessmap_research.runner.encoding import case_of_key
from hessmap_research.runner.store import Outcome
from hessmap_research.runner.study import Study

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# glibc gives memory back to the system as soon as it is freed and asks for it again at the next batch; the first touch
# of every page then takes half of the time of training a convolutional network. These are bytes that it keeps.
KEPT_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TRIM_THRESHOLD_": "536870912",
    "MALLOC_TOP_PAD_": "67108864",
}


def case_outcome(study: Study, key: str) -> Outcome:
    """Measure the case of a key; whatever it raises becomes the error of the outcome."""
    started = time.perf_counter()
    record, error = None, None
    try:
        record = _record_text(study, key)
    except (Exception, SystemExit) as raised:
        error = f"{_last_line(raised)}\n{traceback.format_exc()}"
    return Outcome(key, record, error, time.perf_counter() - started, provenance_text())


@functools.cache
def provenance_text() -> str:
    """The versions of Python and of packages, as JSON; the moment is kept with each result."""
    made_with = provenance()
    return json.dumps({"versions": made_with.versions, "dtype": made_with.dtype}, sort_keys=True)


def thread_environment(threads: int) -> dict[str, str]:
    """The variables that hold BLAS and OpenMP of a process that starts with them to some threads."""
    return dict.fromkeys(_THREAD_VARIABLES, str(threads))


def limit_threads(threads: int) -> None:
    """Hold torch of this process to some threads, loaded already or not."""
    os.environ.update(thread_environment(threads))
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)


def _record_text(study: Study, key: str) -> str:
    case = case_of_key(key)
    record = study.measure(case)
    repeated = sorted(set(case) & set(record))
    if repeated:
        raise InvalidInput(sentence("a record must not repeat a name of its case", f"it repeats {', '.join(repeated)}"))
    return encode(record)


def _last_line(raised: BaseException) -> str:
    return traceback.format_exception_only(raised)[-1].strip()
