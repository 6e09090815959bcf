"""The Map and Compare screens: stored maps, their spectra under any threshold, layers, and two of them side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query

from hessmap.errors import require, unknown_name
from hessmap.maps.comparison import compare_maps
from hessmap.records import (
    HESSIAN_SYMBOLS,
    CurvatureMap,
    NetworkCurvature,
    PartCurvature,
    RankMeasurement,
    StoredMap,
    command_line,
    whole_of,
)
from hessmap.views.plots.figure_data import MOST_POINTS, FigureData
from hessmap.views.plots.layers import QUANTITIES, changes_data, layers_data
from hessmap.views.plots.spectrum import HESSIANS, density_data, spectrum_data
from hessmap.views.tables import comparison as compared
from hessmap.views.tables import map as mapped
from hessmap.views.tables.contents import Table
from hessmap_explorer.answers import Answer, shown_entry
from hessmap_explorer.figures.maps import overlaid_spectra
from hessmap_explorer.python_lines import comparison_lines, map_lines, overlaid_spectra_lines
from hessmap_explorer.reading import chosen_network, stored_map, stored_maps, warm_up
from hessmap_explorer.settings import Explorer


def table(contents: Table) -> dict[str, Any]:
    """A table for the page."""
    return {"labels": contents.labels, "lines": contents.lines, "is_number": contents.is_number}


def maps_router(explorer: Explorer) -> APIRouter:
    """The routes of an explorer about maps."""
    router = APIRouter(prefix="/api")

    @router.get("/maps")
    def listed() -> Answer:
        warm_up()
        refused: list[str] = []
        found = stored_maps(explorer.store, refused)
        return Answer({"maps": [summary.to_dict() for summary in reversed(found)], "refused": refused})

    @router.get("/maps/{name}")
    def one(name: str) -> Answer:
        warm_up()
        with shown_entry(f"the map {name!r}"):
            return Answer(_described(explorer.store, stored_map(explorer.store, name)))

    @router.get("/maps/{name}/record")
    def record(name: str) -> Answer:
        with shown_entry(f"the map {name!r}"):
            return Answer(stored_map(explorer.store, name).record.to_dict())

    @router.get("/maps/{name}/rank")
    def rank(
        name: str,
        tolerance: Annotated[float, Query(gt=0, lt=1)],
        network: int = 0,
    ) -> Answer:
        """The ranks of the three Hessians where eigenvalues up to ``tolerance`` of the norm of H_L count as zero."""
        with shown_entry(f"the map {name!r}"):
            chosen = chosen_network(stored_map(explorer.store, name).record, network)
            require(chosen.is_dense, "a rank needs all eigenvalues", "this map contains estimates from products")
            return Answer({"tolerance": tolerance, "ranks": _ranks(chosen, tolerance)})

    @router.get("/compare")
    def compare(old: str, new: str) -> Answer:
        with shown_entry(f"the comparison of {old!r} and {new!r}"):
            return Answer(_compared(explorer.store, stored_map(explorer.store, old), stored_map(explorer.store, new)))

    return router


def _ranks(network: NetworkCurvature, tolerance: float) -> list[dict[str, Any]]:
    from hessmap.measurement import numerical_rank

    return [
        _rank(part, numerical_rank(part.spectrum, scale=part.measurement.scale, relative_tolerance=tolerance))
        for part in shown_parts(network)
    ]


def shown_parts(network: NetworkCurvature) -> list[PartCurvature]:
    """The Hessians that a map contains, in the order of every screen."""
    return sorted(network.parts, key=lambda part: HESSIANS.index(part.part))


def _rank(part: PartCurvature, counted: RankMeasurement) -> dict[str, Any]:
    return {
        "part": part.part,
        "symbol": HESSIAN_SYMBOLS[part.part],
        "value": counted.value,
        "gap": None if counted.gap == float("inf") else counted.gap,
        "decidable": counted.decidable,
        "smallest_kept": counted.smallest_kept,
        "largest_dropped": counted.largest_dropped,
        "size": counted.size,
        "predicted": None if part.prediction is None else part.prediction.value,
        "kind": "" if part.prediction is None else part.prediction.kind_text,
        "certified": None if part.certificate is None else part.certificate.value,
    }


def _described(store: Path, stored: StoredMap) -> dict[str, Any]:
    made, whole = stored.record, whole_of(stored.record.network)
    origin = made.provenance
    return {
        "name": stored.name,
        "title": made.title,
        "created": origin.created if origin else "",
        "command": stored.command,
        "summary": made.summary,
        "whole": whole.rows(),
        "networks": [_network(store, stored.name, network, place) for place, network in enumerate(made.networks)],
        "density": density_data(whole.density, whole.eigenvalues, map_lines(store, stored.name, "density")).to_dict(),
        "layers": _layers(store, stored.name, made),
        "versions": dict(origin.versions) if origin else {},
        "work": None if made.work is None else {"seconds": made.work.seconds, "products": made.work.num_products},
    }


def _network(store: Path, name: str, network: NetworkCurvature, place: int) -> dict[str, Any]:
    return {
        "number": place,
        "name": network.name,
        "description": network.description,
        "facts": mapped.network_facts(network),
        "is_dense": network.is_dense,
        "spectrum": _spectrum(network, map_lines(store, name, "spectrum")).to_dict() if network.is_dense else None,
        "tolerance": network["loss"].measurement.threshold / (network["loss"].measurement.scale or 1.0)
        if network.is_dense
        else None,
        "ranks": [_rank(part, part.measurement) for part in shown_parts(network)] if network.is_dense else [],
        "gap": network.prediction_gap,
        "notes": network.notes,
    }


def _spectrum(network: NetworkCurvature, python: str) -> FigureData:
    """Without the shade below the threshold: on the page the threshold is a line that moves."""
    figure = spectrum_data(network, python, MOST_POINTS)
    return replace(figure, lines=tuple(line for line in figure.lines if line.axis == "x"))


def _layers(store: Path, name: str, made: CurvatureMap) -> dict[str, Any]:
    network = made.network
    return {
        "figure": layers_data(network, map_lines(store, name, "layers")).to_dict(),
        "table": table(mapped.layers(network)),
        "legend": mapped.layers_legend(network),
        "blocks": [layer.to_dict() for layer in network.layers],
    }


def _compared(store: Path, old: StoredMap, new: StoredMap) -> dict[str, Any]:
    if old.name == new.name:
        raise unknown_name("the second map", new.name, ["another than the first"])
    found = compare_maps(old.record, new.record, old.name, new.name)
    are_dense = old.record.network.is_dense and new.record.network.is_dense
    spectra = overlaid_spectra((old.name, old.record), (new.name, new.record))
    figures = [replace(spectra, python=overlaid_spectra_lines(store, old.name, new.name, are_dense))]
    python = comparison_lines(store, old.name, new.name)
    figures += [changes_data(found, label, python) for label in QUANTITIES] if found.layers else []
    tables = {"The whole network": compared.numbers(found), "Layers": compared.layers(found)}
    tables |= {"The three Hessians": compared.parts(found)} if found.parts else {}
    tables |= {"Factors of the layers": compared.factors(found)} if compared.has_factors(found) else {}
    return {
        "identities": [compared.identity_line(side) for side in (found.old, found.new)],
        "caveats": found.caveats,
        "summary": found.summary,
        "figures": [figure.to_dict() for figure in figures],
        "tables": [{"title": title, **table(contents)} for title, contents in tables.items() if contents.lines],
        "undecided": compared.NO_CLEAR_GAP if compared.has_undecided_rank(found) else "",
        "command": command_line("maps", "compare", values=[old.name, new.name]),
    }
