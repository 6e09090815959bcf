"""The page of all studies: question, source, verdict of the committed results, and the figure where there is one."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from hessmap.runs.registry import Listing, listing

ROOT = Path(__file__).parents[2]
FAMILIES = {
    "certificates": ("Certificates", "certificates.md"),
    "cnn": ("Convolutional networks", "convolutional.md"),
    "fcn": ("Fully connected networks", "fully-connected.md"),
    "function": ("The rank of the function", "function-rank.md"),
    "learning": ("Learning coefficients", "learning-coefficients.md"),
    "layers": ("Layer by layer", "layers.md"),
    "teacher": ("Teacher and student", "teacher-student.md"),
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    files.append(File.generated(config, "gallery/studies.md", content=studies_page()))
    return files


def studies_page() -> str:
    parts = [
        "# All studies",
        "A study asks one question case by case. `hessmap study run NAME` runs it, `hessmap study show NAME --results"
        " results` shows what was run for this page; [Studies](../studies.md) says how they work and how to add one.",
    ]
    for family, studies in groupby(listing(), key=lambda study: study.name.partition("/")[0]):
        title, page = FAMILIES.get(family, (family.capitalize(), ""))
        parts.append(f"## {title}")
        if page:
            parts.append(f"The numbers and what they mean: [{title.lower()}](../{page}).")
        parts += [study_entry(study) for study in studies]
    return "\n\n".join(parts) + "\n"


def study_entry(study: Listing) -> str:
    stem = study.name.replace("/", "-")
    lines = [f"### `{study.name}`", study.question, f"*{study.reference}*"]
    results = ROOT / "results" / f"{stem}.json"
    if results.exists():
        lines.append(f"**{json.loads(results.read_text(encoding='utf-8'))['verdict']}**")
    pictures = sorted((ROOT / "docs" / "pictures").glob(f"{stem}.*"))
    lines += [f"![{study.question}](../pictures/{picture.name}){{ loading=lazy }}" for picture in pictures]
    return "\n\n".join(lines)
