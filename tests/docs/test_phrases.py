"""Phrases that readers stumble over do not return: a list of patterns over sources and pages, and what is allowed.

Each pattern has its plain form. ``ALLOWED`` lists the files that still contain one: remove an entry when its phrase is
gone, and add none.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# phrase: what to write
PHRASES = {
    r"\banew\b": "again",
    r"\bheld against\b": "compared with",
    r"\bas the paper has it\b": "as in the paper",
    r"\b(is|and|are) no bounds?\b": "is not a bound",
    r"\bs of a core\b": "CPU-seconds",
    r"\bbut for\b": "except for",
    r"\bso many\b": "that many, or the number",
    r"\bsome (ten|hundred|thousand)\b": "about ten, a few hundred",
    r"\bunless given\b": "Default: ..",
    r"\blinear twin\b": "the network without activations",
    r"\bkinds? of truth\b": "kind",
    r"\bwhoever\b": "if you ..",
    r"\bphotographs\b": "CIFAR-10 images",
}
SOURCES = (
    ("src", "*.py"),
    ("src", "*.j2"),
    ("explorer/src", "*.py"),
    ("explorer/src", "*.js"),
    ("explorer/src", "*.j2"),
    ("docs", "*.md"),
    ("examples", "*.py"),
    ("research/src", "*.py"),
    ("research/src", "*.toml"),
    ("research/docs", "*.md"),
)
ALLOWED: dict[str, set[str]] = {
    "README.md": {r"\bkinds? of truth\b"},
    "docs/benchmarks.md": {r"\banew\b"},
    "research/docs/certificates.md": {r"\banew\b"},
    "research/docs/conjectures.md": {r"\bbut for\b"},
    "research/docs/convolutional.md": {
        r"\b(is|and|are) no bounds?\b",
        r"\bas the paper has it\b",
        r"\bbut for\b",
        r"\bkinds? of truth\b",
    },
    "research/docs/fully-connected.md": {r"\b(is|and|are) no bounds?\b", r"\bs of a core\b"},
    "research/docs/function-rank.md": {r"\bkinds? of truth\b", r"\bs of a core\b", r"\bwhoever\b"},
    "research/docs/layers.md": {r"\bas the paper has it\b", r"\bbut for\b", r"\bs of a core\b"},
    "research/docs/learning-coefficients.md": {r"\bheld against\b"},
    "research/docs/studies.md": {r"\banew\b"},
    "research/docs/teacher-student.md": {r"\bbut for\b", r"\bkinds? of truth\b", r"\bsome (ten|hundred|thousand)\b"},
    "research/src/hessmap_research/cli/study.py": {r"\bunless given\b"},
    "research/src/hessmap_research/deep_linear/operators.py": {r"\bbut for\b"},
    "research/src/hessmap_research/instruments/stationary.py": {r"\bbut for\b"},
    "research/src/hessmap_research/papers/fully_connected.toml": {r"\b(is|and|are) no bounds?\b", r"\bs of a core\b"},
    "research/src/hessmap_research/papers/functions.toml": {r"\bs of a core\b"},
    "research/src/hessmap_research/papers/layers.toml": {
        r"\banew\b",
        r"\bas the paper has it\b",
        r"\bbut for\b",
        r"\bs of a core\b",
    },
    "research/src/hessmap_research/runner/claims.py": {r"\bkinds? of truth\b"},
    "research/src/hessmap_research/runner/engines/processes.py": {r"\bheld against\b"},
    "research/src/hessmap_research/runner/plan.py": {r"\bso many\b"},
    "research/src/hessmap_research/runner/study.py": {r"\bbut for\b"},
    "research/src/hessmap_research/studies/certificates/data_priors.py": {r"\bso many\b"},
    "research/src/hessmap_research/studies/certificates/digits.py": {r"\banew\b"},
    "research/src/hessmap_research/studies/certificates/prior_cases.py": {r"\bphotographs\b", r"\bso many\b"},
    "research/src/hessmap_research/studies/certificates/tables.py": {r"\banew\b"},
    "research/src/hessmap_research/studies/cnn/generalisation.py": {r"\banew\b"},
    "research/src/hessmap_research/studies/cnn/growth.py": {r"\bbut for\b"},
    "research/src/hessmap_research/studies/cnn/rank_vs_samples.py": {r"\bbut for\b"},
    "research/src/hessmap_research/studies/function/built_start.py": {r"\bbut for\b"},
    "research/src/hessmap_research/studies/function/quasi_newton.py": {r"\bso many\b"},
    "research/src/hessmap_research/studies/function/regularised_network.py": {r"\bso many\b"},
    "research/src/hessmap_research/studies/function/tripoints.py": {r"\bso many\b"},
    "research/src/hessmap_research/studies/layers/layer_cases.py": {r"\bs of a core\b"},
    "research/src/hessmap_research/studies/layers/overlap.py": {r"\bas the paper has it\b"},
    "research/src/hessmap_research/studies/layers/rank_one.py": {r"\bbut for\b"},
    "research/src/hessmap_research/studies/layers/subspace.py": {r"\bs of a core\b", r"\bso many\b"},
    "research/src/hessmap_research/studies/layers/trained_layers.py": {r"\bsome (ten|hundred|thousand)\b"},
    "research/src/hessmap_research/studies/layers/training.py": {r"\bbut for\b", r"\bs of a core\b", r"\bso many\b"},
    "research/src/hessmap_research/studies/random_networks/comparison.py": {r"\bunless given\b"},
    "research/src/hessmap_research/studies/teacher/fisher.py": {r"\bsome (ten|hundred|thousand)\b"},
    "research/src/hessmap_research/views/legends.py": {r"\bso many\b"},
    "src/hessmap/certificates/bases.py": {r"\bsome (ten|hundred|thousand)\b"},
    "src/hessmap/certificates/fit.py": {r"\bso many\b"},
    "src/hessmap/certificates/stochastic.py": {r"\banew\b", r"\bso many\b"},
    "src/hessmap/exact/attention.py": {r"\bunless given\b"},
    "src/hessmap/exact/generic.py": {r"\bso many\b", r"\bunless given\b"},
    "src/hessmap/hessians/dense.py": {r"\bbut for\b"},
    "src/hessmap/hessians/diagonal.py": {r"\bso many\b"},
    "src/hessmap/linalg/operator.py": {r"\bso many\b"},
    "src/hessmap/linalg/orthogonalisation.py": {r"\bso many\b"},
    "src/hessmap/losses/user.py": {r"\bbut for\b"},
    "src/hessmap/measurement/density.py": {r"\bso many\b"},
    "src/hessmap/measurement/eigenpair_iteration.py": {r"\bso many\b"},
    "src/hessmap/measurement/rank.py": {r"\bbut for\b", r"\bso many\b"},
    "src/hessmap/networks/fully_connected.py": {r"\bunless given\b"},
    "src/hessmap/problem/checks.py": {r"\banew\b"},
    "src/hessmap/problem/model.py": {r"\banew\b"},
    "src/hessmap/problem/samples.py": {r"\banew\b"},
    "src/hessmap/theory/attention/single_head.py": {r"\bso many\b"},
    "src/hessmap/theory/convolutional/chains.py": {r"\bso many\b"},
    "src/hessmap/theory/convolutional/deep_bounds.py": {r"\bunless given\b"},
    "src/hessmap/theory/convolutional/one_layer.py": {r"\bunless given\b"},
    "src/hessmap/theory/convolutional/prediction.py": {r"\bso many\b"},
    "src/hessmap/theory/fully_connected/activations.py": {r"\bbut for\b", r"\bunless given\b"},
    "src/hessmap/theory/prediction.py": {r"\b(is|and|are) no bounds?\b", r"\bso many\b", r"\bunless given\b"},
}


def files() -> list[Path]:
    found = [path for folder, pattern in SOURCES for path in (ROOT / folder).rglob(pattern)]
    return [path for path in [*found, ROOT / "README.md", ROOT / "CHANGELOG.md"] if "vendor" not in path.parts]


def phrases_in(text: str) -> set[str]:
    plain = " ".join(text.split())  # phrases that a line break divides count too
    return {phrase for phrase in PHRASES if re.search(phrase, plain, re.IGNORECASE)}


def test_no_listed_phrase_is_in_a_source_or_page() -> None:
    found = {path.relative_to(ROOT).as_posix(): phrases_in(path.read_text(encoding="utf-8")) for path in files()}
    new = {
        f"{name}: {phrase} (write: {PHRASES[phrase]})"
        for name, phrases in found.items()
        for phrase in phrases - ALLOWED.get(name, set())
    }
    assert new == set(), "\n".join(sorted(new))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The weights are drawn anew.", {r"\banew\b"}),
        ("equal but\nfor rounding", {r"\bbut for\b"}),
        ("renewed; a bound; not a bound", set()),
        ("It is no bound.", {r"\b(is|and|are) no bounds?\b"}),
    ],
)
def test_phrases_are_found_across_lines_and_in_whole_words(text: str, expected: set[str]) -> None:
    assert phrases_in(text) == expected
