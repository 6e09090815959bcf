"""The Python lines behind every figure of the explorer: pasted into a script they draw the same with matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hessmap.views.plots.spectrum import HESSIANS
from hessmap_explorer.questions import Question, varied

_TEACHER = (("networks", "Polynomial"), ("theory", "effective_parameters"))
_PATH, _PYPLOT = "from pathlib import Path", "import matplotlib.pyplot as plt"


def prediction_lines(question: Question) -> str:
    """The ranks of one network."""
    if question.family.is_teacher:
        own = [f"from hessmap.{room} import {name}" for room, name in _TEACHER]
        return _script([], own, [f"print(effective_parameters({_arguments(question.network)}))"])
    call = f"hm.predict_ranks({_parsed(question.network)}{_comma(_arguments(question.given))})"
    return _script([], ["import hessmap as hm"], [f"print({call})"])


def curve_lines(question: Question, over: str, values: Sequence[int]) -> str:
    """The ranks while one number runs through the values at which there is a network."""
    others = {name: value for name, value in question.given.items() if name != over}
    drawn = [
        f"for part in {HESSIANS}:",
        "    plt.plot(values, [getattr(one, part).value for one in found], label=part)",
    ]
    own = [_PYPLOT, "import hessmap as hm"]
    if question.family.is_teacher:
        fixed = {name: value for name, value in question.network.items() if name != over}
        own = [_PYPLOT, *(f"from hessmap.{room} import {name}" for room, name in _TEACHER)]
        call = f"effective_parameters({over}=value{_comma(_arguments(fixed))})"
        drawn = ["plt.plot(values, [one.value for one in found], label='loss')"]
        body = [f"found = [{call} for value in values]"]
    elif over in question.known:
        call = f"hm.predict_ranks(net, {over}=value{_comma(_arguments(others))})"
        body = [f"net = {_parsed(question.network)}", f"found = [{call} for value in values]"]
    else:
        names = [f"    {str(varied(question, over, value).network)!r}," for value in values]
        call = f"hm.predict_ranks(hm.networks.parse_network(name){_comma(_arguments(others))})"
        body = ["networks = [", *names, "]", f"found = [{call} for name in networks]"]
    return _script([], own, [f"values = {list(values)}", *body, *drawn, *_saved("ranks")])


def _parsed(network: Any) -> str:
    return f"hm.networks.parse_network({str(network)!r})"


def _arguments(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def _comma(text: str) -> str:
    return f", {text}" if text else ""


def map_lines(store: Path, name: str, picture: str) -> str:
    """A picture of a stored map."""
    body = [*_opened(store, f"found = load_map(store, {name!r}).record"), f"found.plot({picture!r}).savefig('map.svg')"]
    return _script([_PATH], ["from hessmap.records.store import Store, load_map"], body)


def comparison_lines(store: Path, old: str, new: str) -> str:
    """The bars of two maps, layer by layer."""
    both = f"old, new = (load_map(store, name).record for name in ({old!r}, {new!r}))"
    drawn = f"compare_maps(old, new, {old!r}, {new!r}).plot().savefig('comparison.svg')"
    own = ["from hessmap.maps.comparison import compare_maps", "from hessmap.records.store import Store, load_map"]
    return _script([_PATH], own, [*_opened(store, both), drawn])


def overlaid_spectra_lines(store: Path, old: str, new: str, are_dense: bool) -> str:
    """The eigenvalues of two loss Hessians, or their densities."""
    if are_dense:
        curve = [
            "values = abs(found.network['loss'].spectrum.eigenvalues)",
            "plt.semilogy(sorted(values)[::-1], label=name)",
        ]
    else:
        curve = ["curve = whole_of(found.network).density", "plt.semilogy(curve.grid, curve.density, label=name)"]
    own = [_PYPLOT, "from hessmap.records.maps import whole_of", "from hessmap.records.store import Store, load_map"]
    both = f"maps = {{name: load_map(store, name).record for name in ({old!r}, {new!r})}}"
    drawn = ["for name, found in maps.items():", *(f"    {line}" for line in curve), *_saved("spectra")]
    return _script([_PATH], own, [*_opened(store, both), *drawn])


def track_lines(store: Path, names: Sequence[str], column: str) -> str:
    """All curves of one track, or one of the curves of several."""
    own = ["from hessmap.records.store import Store, load_track"]
    if len(names) == 1:
        body = [*_opened(store, f"track = load_track(store, {names[0]!r})"), "track.plot().savefig('track.svg')"]
        return _script([_PATH], own, body)
    body = [
        *_opened(store, f"tracks = [load_track(store, name) for name in {tuple(names)!r}]"),
        "for track in tracks:",
        "    steps = [point.step for point in track.points]",
        f"    plt.plot(steps, track.column({column!r}), label=track.name)",
        f"plt.ylabel({column.replace('_', ' ')!r})",
        *_saved("tracks"),
    ]
    return _script([_PATH], [_PYPLOT, *own], body)


def study_lines(name: str, panel: int) -> str:
    """One panel of a study, from the records in the folder of the script."""
    own = [
        "from hessmap_research.runner.collection import study_collection",
        "from hessmap_research.runner.registry import find",
        "from hessmap_research.views.figure import study_figure",
    ]
    drawn = f"study_figure(found, panel={panel}).savefig('study.svg')"
    return _script([], own, [f"found = study_collection(find({name!r}))", drawn])


def result_lines(path: Path, kind: str) -> str:
    """The layers of a kept function, a kept loss plane, or the gauge of a kept certificate."""
    own, content = {
        "function": ("from hessmap.records import BottleneckView as Record", "content['bottleneck_view']"),
        "plane": ("from hessmap.records import LossPlane as Record", "content"),
        "certificate": ("from hessmap.certificates import Certificate as Record", "content"),
    }[kind]
    body = [
        f"content = json.loads(Path({str(path)!r}).read_text())",
        f"Record.from_dict({content}).plot().savefig('{kind}.svg')",
    ]
    return _script(["import json", _PATH], [own], body)


def eigenvector_lines(words: Sequence[str], place: int) -> str:
    """One of the eigenvectors that a command finds: a map keeps none, so that the network is made again."""
    return _directions_lines(words, [f"plt.imshow(found['vectors'][{place}], cmap='RdBu')"])


def directions_lines(words: Sequence[str], name: str) -> str:
    """The curves under a name in what a command finds."""
    drawn = [
        f"for label, values in found[{name!r}].items():",
        "    plt.plot(values, 'o-', label=label)",
        "plt.legend()",
    ]
    return _directions_lines(words, drawn)


def _directions_lines(words: Sequence[str], drawn: Sequence[str]) -> str:
    body = [
        f"command = {['hessmap', *words]!r}",
        "found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)",
        *drawn,
        "plt.savefig('directions.svg')",
    ]
    return _script(["import json", "import subprocess"], [_PYPLOT], body)


def _opened(store: Path, line: str) -> list[str]:
    return [f"with Store(Path({str(store)!r})) as store:", f"    {line}"]


def _saved(name: str) -> list[str]:
    return ["plt.legend()", f"plt.savefig('{name}.svg')"]


def _script(standard: Sequence[str], others: Sequence[str], body: Sequence[str]) -> str:
    """Imports of the standard library, other imports, then the work."""
    parts = ["\n".join(part) for part in (standard, others, body) if part]
    return "\n\n".join(parts)
