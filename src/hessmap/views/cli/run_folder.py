"""The folder of a run: figures for people, the record for programs."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hessmap.errors import InvalidInput, require, sentence

if TYPE_CHECKING:
    from hessmap.results.map_estimates import CurvatureEstimates
    from hessmap.results.maps import CurvatureMap


def new_name(store: Path, name: str | None, replace: bool) -> str:
    """The name to store a map under: the given one, which must be free unless it is replaced, or the time.

    It is asked for before any work is done, so that a wrong name or store costs nothing.
    """
    require(
        name is None or re.fullmatch(r"[\w.-]+", name) is not None,
        "a name of a run must be made of letters, digits, '.', '-' and '_'",
        f"got {name!r}",
        "Use --output for a path",
    )
    from hessmap.runs.store import Store, free_name, require_free_map

    with Store(store, create=True) as opened:
        opened.require_sound()
        if name is None:
            return free_name(opened, "map", time.strftime("%Y%m%d-%H%M%S"))
        if not replace:
            require_free_map(opened, name)
    return name


def new_folder(output: Path | None, name: str) -> Path:
    """Make the folder before any work is done, so that a wrong path costs nothing."""
    folder = output or Path("hessmap-runs") / f"map-{name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(
            sentence("the output folder must be writable", f"{folder} is not ({error.strerror})", "Give --output")
        ) from error
    return folder


def write_record(found: CurvatureMap | CurvatureEstimates, folder: Path) -> Path:
    """The record alone."""
    path = folder / "map.json"
    path.write_text(found.to_json(), encoding="utf-8")
    return path


def write_map(curvature_map: CurvatureMap, folder: Path) -> list[Path]:
    """The record and the figures; the paths that were written."""
    from hessmap.views.plots import layers_figure, save_figure, spectrum_figure

    record = write_record(curvature_map, folder)
    spectra = save_figure(spectrum_figure(curvature_map), folder, "spectrum")
    return [record, *spectra, *save_figure(layers_figure(curvature_map), folder, "layers")]
