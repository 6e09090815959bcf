"""Do the certificates that a study left as files verify in a process that did not make them?

``python benchmarks/verify_certificates.py hessmap-runs/certificates``: each file is read, the samples are split anew,
and every number is recomputed with draws of a seed of this verifier's own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from hessmap_research.studies.certificates.data_priors import verification

RESULTS = Path(__file__).parent / "results" / "verified_certificates.json"


def verify_all(folder: Path) -> None:
    """One row a file: its case, the verdict, the claimed bound and the verifier's own; written after each."""
    rows: list[dict[str, object]] = []
    for path in sorted(folder.glob("*.npz")):
        case = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        found = verification(case, path)
        row = {"verdict": found.verdict, "claimed": found.claimed_bound, "bound": found.bound, "reasons": found.reasons}
        rows.append({"case": case, **row})
        RESULTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        print(found.verdict, f"{found.claimed_bound:.4f}", f"{found.bound or 1:.4f}", case, flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    verify_all(Path(sys.argv[1]))
