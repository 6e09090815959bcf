"""``make pictures``: draw the figures that guides show, by running the examples that make them.

``python docs/hooks/example_pictures.py influence`` draws some of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
EXAMPLES = {  # picture: the example that writes it
    "kfac-error": "kronecker_factors",
    "influence": "influence_of_samples",
    "laplace": "laplace_uncertainty",
    "merging": "merge_and_consolidate",
    "measured-in-place": "measure_in_place",
    "own-operator": "own_operator",
    "shifted-solves": "shifted_solves",
}


def draw(picture: str) -> None:
    with TemporaryDirectory() as folder:
        program = [sys.executable, str(ROOT / "examples" / f"{EXAMPLES[picture]}.py")]
        subprocess.run(program, cwd=folder, env={**os.environ, "MPLBACKEND": "agg"}, check=True)
        shutil.copy(Path(folder) / "hessmap-runs" / f"{picture}.png", PICTURES / f"{picture}.png")
    print(f"written to {(PICTURES / picture).relative_to(ROOT)}.png")


if __name__ == "__main__":
    for name in sys.argv[1:] or EXAMPLES:
        draw(name)
