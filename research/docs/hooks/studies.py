"""The page of all studies: question, answer and outcomes of the committed results, source, and the figure."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from hessmap_research.runner.collection import collection_from_results, results_path
from hessmap_research.runner.registry import Listing, find, listing

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

RESEARCH = Path(__file__).parents[2]
FAMILIES = {
    "attention": ("Attention", "attention-residual.md"),
    "certificates": ("Certificates", "certificates.md"),
    "cnn": ("Convolutional networks", "convolutional.md"),
    "fcn": ("Fully connected networks", "fully-connected.md"),
    "function": ("The rank of the function", "function-rank.md"),
    "learning": ("Learning coefficients", "learning-coefficients.md"),
    "layers": ("Layer by layer", "layers.md"),
    "residual": ("Residual networks", "attention-residual.md"),
    "teacher": ("Teacher and student", "teacher-student.md"),
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    files.append(File.generated(config, "all-studies.md", content=studies_page()))
    return files


def studies_page() -> str:
    parts = [
        "# All studies",
        "A study asks one question case by case. `hessmap study run NAME` runs it, `hessmap study show NAME"
        " --results research/results` shows what was run for this page; [Studies](studies.md) says how they work and"
        " how to add one.",
    ]
    for family, studies in groupby(listing(), key=lambda study: study.name.partition("/")[0]):
        title, page = FAMILIES.get(family, (family.capitalize(), ""))
        parts.append(f"## {title}")
        if page:
            parts.append(f"The numbers and what they mean: [{title.lower()}]({page}).")
        parts += [study_entry(study) for study in studies]
    return "\n\n".join(parts) + "\n"


def study_entry(study: Listing) -> str:
    stem = study.name.replace("/", "-")
    lines = [f"### `{study.name}`", study.question]
    declared = find(study.name)
    if results_path(declared, RESEARCH / "results").exists():
        outcome = collection_from_results(declared, RESEARCH / "results").outcome
        lines.append(f"**{literal(declared.answer(outcome))}**")
        lines.append(literal(f"{outcome.against} {outcome.sentence}".strip()))
    lines.append(f"*{literal(study.reference)}*")
    pictures = sorted((RESEARCH / "docs" / "pictures").glob(f"{stem}.*"))
    lines += [f"![{study.question}](pictures/{picture.name}){{ loading=lazy }}" for picture in pictures]
    return "\n\n".join(lines)


def literal(text: str) -> str:
    """A sentence as it is, whatever of it Markdown would read as a sign: ``E[M]``, ``k*``, ``H_o``."""
    return re.sub(r"([\\`*_{}\[\]])", r"\\\1", text).replace("<", "&lt;")
