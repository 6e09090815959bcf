"""The Predict screen: ranks from integers alone, the curve over one of them, the check in exact arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

from fastapi import APIRouter, Request

from hessmap.errors import HessmapError, require
from hessmap.networks import Architecture, FullyConnected
from hessmap.records import HESSIAN_SYMBOLS, Part, command_line
from hessmap.theory import effective_parameters, predict_ranks
from hessmap.views.plots.figure_data import Axis, FigureData, Trace
from hessmap.views.plots.spectrum import HESSIANS
from hessmap_explorer.answers import Answer
from hessmap_explorer.families import FAMILIES
from hessmap_explorer.fields import QUESTIONS, is_count
from hessmap_explorer.python_lines import curve_lines, prediction_lines
from hessmap_explorer.questions import Question, read_question, varied

router = APIRouter(prefix="/api/predict")
_MOST_POINTS = 64  # of a curve
_RANKS_OF_DATA = frozenset(("input_rank", "centred_input_rank", "residual_rank"))
_MEANINGS = {
    "exact": "A theorem for generic weights: all except a set of measure zero.",
    "upper bound": "A theorem: never more, for any weights.",
    "conjecture": "No proof, and no counterexample in exact arithmetic.",
    "conjectured bound": "Never more, as far as exact arithmetic was tried; no proof.",
    "numerical": "No theorem: the formula of the linear network, which counts the bulk of the spectrum.",
}
Pairs = tuple[tuple[str, str], ...]


@router.get("/families")
async def families() -> Answer:
    """What can be predicted, and what the page asks for."""
    asked = {name: field.__dict__ for name, field in QUESTIONS.items()}
    return Answer({"families": [family.described() for family in FAMILIES.values()], "questions": asked})


@router.get("")
async def prediction(request: Request) -> Answer:
    """The ranks of the network that the query describes."""
    return Answer(_prediction(tuple(request.query_params.multi_items())))


@router.get("/curve")
def curve(request: Request) -> Answer:
    """The same ranks while one of the numbers runs from ``low`` to ``high``."""
    return Answer(_curve(tuple(request.query_params.multi_items())))


@lru_cache(maxsize=4096)
def _prediction(pairs: Pairs) -> dict[str, Any]:
    question = read_question(_once(pairs))
    ranks, num_parameters, assumptions = _ranks(question)
    largest = {} if question.family.is_teacher else _largest(question)
    values, is_teacher = question.values, question.family.is_teacher
    name = f"teacher {values['inputs']}-{values['hidden']}-1" if is_teacher else str(question.network)
    return {
        "network": name,
        "num_parameters": num_parameters,
        "largest": largest,
        "ranks": [{"part": part, "symbol": HESSIAN_SYMBOLS[part], **ranks[part]} for part in ranks],
        "assumptions": assumptions,
        "command": "" if is_teacher else command_line(*_words(question)),
        "python": prediction_lines(question),
    }


def _once(pairs: Pairs) -> dict[str, str]:
    given = dict(pairs)
    require(len(given) == len(pairs), "every field is given once", "one is given twice")
    return given


def _ranks(question: Question) -> tuple[dict[Part, dict[str, Any]], int, tuple[str, ...]]:
    """Value, kind and reference of each part that the family has; the parameters; what is assumed."""
    if question.family.is_teacher:
        found = effective_parameters(**question.network)
        rank = _rank(found.value, found.kind.replace("_", " "), found.reference, found.num_parameters, found.num_cases)
        whole = found.function_space_dim
        space = "an infinite number of dimensions" if whole is None else f"{whole:,} dimensions"
        notes = (f"The student's functions span {space}.", "At the teacher the residuals vanish: H_L is H_o.")
        return {"loss": rank}, found.num_parameters, notes
    predicted = predict_ranks(question.network, **question.known)
    size = predicted.num_parameters
    parts = {part: getattr(predicted, part) for part in HESSIANS}
    ranks = {part: _rank(one.value, one.kind_text, one.reference, size, one.num_cases) for part, one in parts.items()}
    return ranks, size, predicted.assumptions


def _rank(value: int, kind: str, reference: str, size: int, num_cases: int | None) -> dict[str, Any]:
    share = value / size if size else 0.0
    meaning = _MEANINGS.get(kind, "")
    return {
        "value": value,
        "kind": kind,
        "meaning": meaning,
        "reference": reference,
        "share": share,
        "num_cases": num_cases,
    }


def _largest(question: Question) -> dict[str, int]:
    """How far each number of the data can go while the others stay: the generic value that theory takes for it."""
    found = {}
    for name in _RANKS_OF_DATA.intersection(question.known):
        known = {**question.known, name: None}
        with suppress(HessmapError):
            most = predict_ranks(question.network, **known).inputs.get(name)
            if isinstance(most, int):
                found[name] = most
    return found


@lru_cache(maxsize=512)
def _curve(pairs: Pairs) -> dict[str, Any]:
    given = _once(pairs)
    over, ends = given.pop("over", ""), [given.pop(name, "") for name in ("low", "high")]
    question = read_question(given)
    must = "a curve runs from low to high, two whole numbers"
    are_numbers = all(is_count(end) and len(end) <= 6 for end in ends)
    require(are_numbers and int(ends[0]) < int(ends[1]), must, f"got {ends[0]!r:.20} and {ends[1]!r:.20}")
    low, high = map(int, ends)
    step = max(1, -(-(high - low) // (_MOST_POINTS - 1)))
    places = list(range(low, high + 1, step))
    at = [_ranks_or_none(varied(question, over, place)) for place in places]
    known = [found for found in at if found]
    traces = tuple(
        Trace(
            HESSIAN_SYMBOLS[part],
            "line",
            places,
            [found[part]["value"] if found else None for found in at],
            colour=part,
        )
        for part in (known[0] if known else ())
    )
    label = _label(question, over)
    values = [place for place, found in zip(places, at, strict=True) if found]
    python = curve_lines(question, over, values) if values else ""
    figure = FigureData(f"Rank over {label}", Axis(label), Axis("rank"), traces, python=python)
    return figure.to_dict()


def _ranks_or_none(question: Question) -> dict[Part, dict[str, Any]] | None:
    """None where the numbers contradict each other: the curve has a gap there."""
    try:
        return _ranks(question)[0]
    except HessmapError:
        return None


def _label(question: Question, over: str) -> str:
    """What the curve runs over, in words."""
    first, _, place = over.partition(".")
    field = QUESTIONS.get(first) or next(field for field in question.family.fields if field.name == first)
    return f"{field.label.lower().removesuffix('s')} {int(place) + 1}" if place else field.label.lower()


def prediction_command(given: Mapping[str, str]) -> list[str]:
    """The words behind ``hessmap`` that predict the same; of a teacher, the network whose exact rank is asked for."""
    return _words(read_question(given))


def _words(question: Question) -> list[str]:
    words = ["predict", str(_checked_network(question))]
    for name, value in question.given.items():
        words.append(f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}"))
    return words


def _checked_network(question: Question) -> Architecture:
    """The network itself; at a teacher, the student's network without its extra units."""
    if not question.family.is_teacher:
        network: Architecture = question.network
        return network
    chosen = question.network
    must, remedy = "exact arithmetic checks a student that is as wide as its teacher", "Set the extra units to 0"
    require(not chosen["num_extra"], must, f"it has {chosen['num_extra']} extra units", remedy)
    bias = chosen["bias"]
    biases = (bias in ("hidden", "both"), bias in ("output", "both"))
    return FullyConnected((chosen["inputs"], chosen["hidden"], 1), bias=biases, activation=chosen["activation"])
