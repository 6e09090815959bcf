"""Writes the tables of docs/guides/models.md from benchmarks/results/models.json and capabilities.json.

python benchmarks/models/table.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides" / "models.md"


def rows_of(name: str) -> list[dict[str, Any]]:
    stored = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    rows: list[dict[str, Any]] = stored["cases"]
    return rows


def models_table() -> str:
    lines = ["| model | parameters | loss | outcome | error of H v | H_o + H_f | seconds |", "|---" * 7 + "|"]
    for row in rows_of("models"):
        if "error" not in row:
            why = row.get("why", "").split(". ")[0]
            lines.append(f"| {row['model']} | | | {row['outcome']}: {why} | | | {row.get('seconds', 0):.1f} |")
            continue
        mark = "".join([" (a)" * row["casts_to_float32"], " (b)" * (row["compared_with"] == "differences")])
        parts = "" if row["parts"] is None else f"{row['parts']:.0e}"
        cells = f"{row['num_parameters']} | {row['loss']} | {row['outcome']} | {row['error']:.0e}{mark} | {parts}"
        lines.append(f"| {row['model']} | {cells} | {row['seconds']:.1f} |")
    return "\n".join(lines)


def capabilities_table() -> str:
    rows = rows_of("capabilities")
    libraries = list(rows[0]["libraries"])
    lines = [f"| | {' | '.join(libraries)} |", "|---" * (len(libraries) + 1) + "|"]
    for row in rows:
        cells = [f"{cell['answer']}{_error(cell)}" for cell in row["libraries"].values()]
        lines.append(f"| {row['question']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _error(cell: dict[str, Any]) -> str:
    return f" ({cell['error']:.0e})" if cell["answer"] == "wrong" and cell["error"] < 1e6 else ""


def replaced(page: str, name: str, table: str) -> str:
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    return re.sub(f"{begin}.*?{end}", lambda _: f"{begin}\n\n{table}\n\n{end}", page, flags=re.DOTALL)


if __name__ == "__main__":
    page = replaced(PAGE.read_text(encoding="utf-8"), "models", models_table())
    PAGE.write_text(replaced(page, "capabilities", capabilities_table()), encoding="utf-8")
