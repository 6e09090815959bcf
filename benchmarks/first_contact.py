"""From nothing to the figure of the README, step by step, in a fresh environment: what each step takes.

The steps are those that a new user would type: an environment, torch (its download is not counted), the install line of
the README, its example. ``make first-contact`` writes benchmarks/results/first_contact.json.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
OUTPUT = ROOT / "benchmarks" / "results" / "first_contact.json"
FIGURE = "curvature.png"


def example() -> str:
    """The first Python block of the README that is marked as needing other libraries."""
    found = re.search(r"<!-- needs models -->\n```python\n(.*?)```", README, re.DOTALL)
    if found is None:
        raise SystemExit("README.md must have a Python block after <!-- needs models -->; found none")
    return found[1]


def install_line() -> list[str]:
    """What the README's first pip command installs."""
    found = re.search(r"^\$ pip install (.+?)(?:\s{2,}#.*)?$", README, re.MULTILINE)
    if found is None:
        raise SystemExit("README.md must have a line '$ pip install ..'; found none")
    return [word.strip('"') for word in found[1].split()]


def main() -> None:
    steps = []

    def step(name: str, command: list[str], folder: Path = ROOT, is_counted: bool = True) -> None:
        start = time.perf_counter()
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, check=False)
        seconds = time.perf_counter() - start
        if done.returncode:
            raise SystemExit(f"{name} failed:\n{done.stderr[-3000:]}")
        steps.append({"step": name, "seconds": round(seconds, 1), "is_counted": is_counted})
        print(f"{seconds:7.1f} s  {name}{'' if is_counted else ' (not counted)'}")
        if done.stdout.strip() and name == "example of the README":
            print(done.stdout)

    environment = {**os.environ, "MPLBACKEND": "agg"}
    environment.pop("PYTHONPATH", None)
    with TemporaryDirectory() as name:
        folder = Path(name)
        python, pip = str(folder / "env/bin/python"), [str(folder / "env/bin/pip"), "install", "--quiet"]
        step("python -m venv", [sys.executable, "-m", "venv", str(folder / "env")])
        step("pip install torch", [*pip, "--constraint", "constraints.txt", "torch"], is_counted=False)
        step(f"pip install {' '.join(install_line())}", [*pip, *install_line()])
        (folder / "example.py").write_text(example(), encoding="utf-8")
        step("example of the README", [python, "example.py"], folder)
        size = (folder / FIGURE).stat().st_size
        (ROOT / "docs" / "pictures" / FIGURE).write_bytes((folder / FIGURE).read_bytes())
    total = sum(row["seconds"] for row in steps if row["is_counted"])
    record = {"commands": len(steps), "seconds": round(total, 1), "figure_bytes": size, "steps": steps}
    OUTPUT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"{total:7.1f} s  in {len(steps)} commands")


if __name__ == "__main__":
    main()
