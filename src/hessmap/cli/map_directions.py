"""``hessmap map directions``: the sharpest directions of a stored map's network, made again from the map's options."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hessmap.cli.options import STORE, AsJson, StorePath, console, echo_json
from hessmap.cli.stored_maps import Name
from hessmap.errors import InvalidInput, require, sentence, short_text

if TYPE_CHECKING:
    from hessmap.problem import Problem
    from hessmap.progress import Progress
    from hessmap.records import EigenpairsMeasurement, MapOptions, MapSummary, StoredMap

_NUM_SHOWN = 40  # eigenvalues of a factor


def directions(
    name: Name,
    layer: Annotated[str | None, typer.Option(help="Of this layer's weight alone, with its two factors.")] = None,
    against: Annotated[str | None, typer.Option(help="Another map: how far the two spaces overlap.")] = None,
    count: Annotated[int, typer.Option(min=1, max=100, help="How many directions.")] = 9,
    yes: Annotated[
        bool, typer.Option("--yes", help="Import the models and data that the maps name without asking.")
    ] = False,
    trust: Annotated[
        list[str] | None,
        typer.Option(metavar="PACKAGE.MODULE:ATTRIBUTE", help="Import this one without asking; may be repeated."),
    ] = None,
    store: StorePath = STORE,
    as_json: AsJson = False,
) -> None:
    """Find the eigenvectors of largest curvature, which a map does not keep.

    The network is made again from the options of the map: trained from its
    seed, or imported, and then measured. A store may come from someone else:
    what it names is imported after you agreed to it.
    """
    from hessmap.records import Store, load_map
    from hessmap.views.progress import TerminalProgress

    names = [name] if against is None else [name, against]
    require(len(set(names)) == len(names), "two maps are compared", f"got {name!r} twice")
    with Store(store) as opened:
        maps = [load_map(opened, one) for one in names]
    references = [reference for stored in maps for reference in options_of_map(stored).references]
    if not yes:
        _require_trust(store, [one for one in dict.fromkeys(references) if one not in (trust or ())])
    with TerminalProgress(keeps_steps=True) as shown:
        shown.start("loading torch")
        problems = [problem_of_map(stored, shown) for stored in maps]
        shown.start(f"the {count} sharpest directions")
        found = [_eigenpairs(problem, layer, count) for problem in problems]
        content = _eigenpairs_content(found[0], problems[0], layer)
        if against is not None:
            content["overlap"] = _overlap(found[0], found[1])
    if as_json:
        echo_json(content)
        return
    console().print(f"Eigenvalues: {', '.join(f'{value:.4g}' for value in content['eigenvalues'])}")
    for place, value in enumerate(content.get("overlap", {}).get("values", []), start=1):
        console().print(f"Overlap of the first {place}: {value:.3f}")


def problem_of_map(stored: StoredMap, shown: Progress) -> Problem:
    """The problem that a stored map was made of, from its options. This imports what they name."""
    from hessmap.cli.subject import mapped_subject
    from hessmap.problem import Problem

    options = options_of_map(stored)
    model, data = mapped_subject(options, shown)
    return Problem(model, options.loss, data)


def options_of_map(stored: StoredMap | MapSummary) -> MapOptions:
    """The options by which a map is made again; a map that was made in Python has none and is refused."""
    if stored.options is None:
        must, got = "a map must have been made by hessmap map to be made again", f"{short_text(stored.name)} was not"
        raise InvalidInput(sentence(must, got, "Use hessmap.loss_hessian and hessmap.top_eigenpairs on its model"))
    return stored.options


def _require_trust(store: Path, references: Sequence[str]) -> None:
    """Ask before code is imported that a store names; without a terminal to ask on, refuse."""
    if not references:
        return
    named = ", ".join(map(repr, references))
    must = "code that a store names must be trusted before it is imported"
    if not sys.stdin.isatty():
        got = f"{store} names {named}, and there is no terminal to ask on"
        raise InvalidInput(sentence(must, got, "Give --yes to import it"))
    typer.echo(f"{store} names {named}, to be found in {Path.cwd()} or among the installed packages.", err=True)
    typer.echo("Import it and run its code? [y/N]: ", err=True, nl=False)  # typer.confirm writes to stdout as well
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InvalidInput(sentence(must, f"{named} was not", "Nothing was imported"))


def _eigenpairs(problem: Problem, layer: str | None, count: int) -> EigenpairsMeasurement:
    from hessmap.hessians import loss_hessian
    from hessmap.measurement import top_eigenpairs

    operator: Any = loss_hessian(problem)
    if layer is not None:
        operator = operator.block(_weight(problem, layer))
    size = operator.shape[0]
    return top_eigenpairs(operator, min(count, size), tolerance=1e-6)


def _weight(problem: Problem, layer: str) -> str:
    """The parameter that a layer of a map is about: its weight, or the one parameter of that name."""
    from hessmap.errors import unknown_name

    names = [name for name, _ in problem.layout]
    for wanted in (f"{layer}.weight", layer):
        if wanted in names:
            return wanted
    raise unknown_name("a layer", layer, [name.removesuffix(".weight") for name in names if name.endswith("weight")])


def _eigenpairs_content(found: EigenpairsMeasurement, problem: Problem, layer: str | None) -> dict[str, Any]:
    content: dict[str, Any] = {
        "eigenvalues": found.eigenvalues.tolist(),
        "residuals": found.residuals.tolist(),
        "converged": found.converged,
        "num_products": found.num_products,
        "size": found.size,
    }
    if layer is None or found.eigenvectors is None:
        return content
    shape = problem.layout.shape(_weight(problem, layer))
    rows = shape[0] if len(shape) > 1 else 1
    content["vectors"] = [vector.reshape(rows, -1).tolist() for vector in found.eigenvectors.T]
    return content | _factors(problem, layer)


def _factors(problem: Problem, layer: str) -> dict[str, Any]:
    """The eigenvalues of both factors of the weight, or why there are none."""
    import torch

    from hessmap.errors import HessmapError
    from hessmap.layers import layer_factors

    try:
        factors = layer_factors(problem, layer)
    except HessmapError as error:
        return {"factors_gap": str(error)}
    spectra = {"input": factors.input_factor, "output": factors.output_factor}
    return {
        "factors": {
            name: torch.linalg.eigvalsh(factor).flip(0)[:_NUM_SHOWN].tolist() for name, factor in spectra.items()
        }
    }


def _overlap(first: EigenpairsMeasurement, second: EigenpairsMeasurement) -> dict[str, Any]:
    from hessmap.measurement import overlap_curve

    must = "two spaces overlap in networks of one size"
    require(first.size == second.size, must, f"the sizes are {first.size:,} and {second.size:,}")
    assert first.eigenvectors is not None
    assert second.eigenvectors is not None
    curve = overlap_curve(first.eigenvectors, second.eigenvectors)
    return {"values": curve.values.tolist(), "chance": curve.chance.tolist()}
