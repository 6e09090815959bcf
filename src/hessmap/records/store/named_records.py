"""Maps and tracks in the store, each under its own name, with the options and the command that recreate a map."""

from __future__ import annotations

import dataclasses
import json
import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any, Literal, Self, TypeVar

from hessmap.errors import InvalidInput, require, sentence, short_text, unknown_name
from hessmap.records.maps import CurvatureMap, CurvatureTrack, TrackPoint
from hessmap.records.provenance import Provenance
from hessmap.records.record import decode, encode
from hessmap.records.store.store import Store, StoreError, store_content, typed
from hessmap.records.strict_json import parsed_json, require_field_types


def command_line(*words: str, values: Sequence[str] = ()) -> str:
    """Spell a ``hessmap`` command for a shell.

    Every command that a page or a table shows is built here: a name or a file that came with a store may contain any
    character, and must neither end the command nor be read as an option.

    Args:
        words: The subcommands and options, each a single word of the command.
        values: Positional arguments. They follow ``--`` if one of them begins with a dash.

    Returns:
        The command with every word quoted where the shell needs it.

    Example:
        >>> command_line("maps", "compare", values=("run1", "a; rm x"))
        "hessmap maps compare run1 'a; rm x'"
        >>> command_line("maps", "show", values=("--help",))
        'hessmap maps show -- --help'
    """
    separator = ["--"] if any(value.startswith("-") for value in values) else []
    return shlex.join(["hessmap", *words, *separator, *values])


_FLAGS = {  # options without a value: the word for True, the word for False
    "bias": ("--bias", ""),
    "ranks": ("--ranks", ""),
    "certify": ("--certify", "--no-certify"),
    "dense": ("--dense", "--estimate"),
}


@dataclass(frozen=True)
class MapOptions:
    """The options of ``hessmap map`` that determine a map, with the defaults of the command.

    Attributes:
        model: Reference to the model. Default: None, a fully connected network is trained.
        data: Name of a listed data set, or reference to data or batches. Defaults to "digits".
        samples: Number of samples of a listed data set. Default: None, all.
        side: Pixels per side that listed images are scaled down to. Default: None, not scaled.
        loss: Name of a loss, reference to one, or "own" for the loss that the model returns. Defaults to
            "cross_entropy".
        widths: Widths of the trained network, such as "64-16-10". Default: None, two hidden layers.
        activation: Activation of the trained network. Defaults to "relu".
        bias: Whether the trained network has biases. Defaults to False.
        epochs: Epochs of its training. Defaults to 40.
        seed: Seed of weights and batches. Defaults to 0.
        ranks: Whether to compute the ranks of the Hessians. Defaults to False.
        certify: Whether to compute the ranks in exact arithmetic as well. Default: None, if the spectrum does not
            decide them and the network is small.
        seconds: Time limit in seconds. Defaults to 60.
        dense: Whether to form dense Hessians. Default: None, if time and memory suffice.
        name: Name of the map in the store. Default: None, the time.
        objective: Reference to a function of model and batch, in place of ``loss``. Default: None.

    Notes:
        A reference is "package.module:attribute". Where the map is written to (``--store``, ``--output``,
        ``--replace``) is not among the options.
    """

    model: str | None = None
    data: str = "digits"
    samples: int | None = None
    side: int | None = None
    loss: str = "cross_entropy"
    widths: str | None = None
    activation: str = "relu"
    bias: bool = False
    epochs: int = 40
    seed: int = 0
    ranks: bool = False
    certify: bool | None = None
    seconds: float = 60.0
    dense: bool | None = None
    name: str | None = None
    objective: str | None = None

    @classmethod
    def from_json(cls, text: object) -> Self:
        """Read what ``to_json`` wrote.

        Args:
            text: The JSON of the options, as a store holds it.

        Returns:
            MapOptions: The options; one that the text leaves out has its default.

        Raises:
            InvalidInput: If the text is not a JSON object of these options, each of its type.
        """
        fields = parsed_json(text, "the options of a map must be JSON")
        if not isinstance(fields, dict):
            raise InvalidInput(sentence("the options of a map must be a JSON object", f"got {short_text(fields)}"))
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = [name for name in fields if name not in known]
        if unknown:
            must = f"the options of a map are {', '.join(sorted(known))}"
            raise InvalidInput(sentence(must, f"got {short_text(unknown[0])}"))
        require_field_types(cls, fields)
        return cls(**fields)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), allow_nan=False)

    @property
    def references(self) -> tuple[str, ...]:
        """The references to Python objects among the options: making the map again imports and runs their modules."""
        given = [value for value in (self.model, self.objective) if value is not None]
        return tuple(dict.fromkeys([*given, *(value for value in (self.data, self.loss) if ":" in value)]))

    @property
    def command(self) -> str:
        """The command that makes the map again, with the options that differ from their defaults."""
        words = ["map"]
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "model" or value == field.default:
                continue
            if field.name in _FLAGS:
                words.append(_FLAGS[field.name][0 if value else 1])
            else:
                words.append(f"--{field.name}={value}")
        return command_line(*words, values=() if self.model is None else (self.model,))


Kind = Literal["map", "track"]
Summary = TypeVar("Summary", "MapSummary", "TrackSummary")


@dataclass(frozen=True)
class MapSummary:
    """The facts about a stored map that are available without reading its record.

    Attributes:
        name: Name of the map.
        created: Time of its making (UTC).
        title: Title of the map.
        network: Description of the network.
        loss: Name of the loss.
        num_parameters: Number of parameters.
        num_samples: Number of samples.
        risk: The loss; None if it is NaN.
        data_hash: Hash of the data; empty if unknown.
        options: Options of ``hessmap map``; None if the map was not made by the command.
    """

    name: str
    created: str
    title: str
    network: str
    loss: str
    num_parameters: int
    num_samples: int
    risk: float | None
    data_hash: str
    options: MapOptions | None

    @property
    def command(self) -> str:
        """The command that makes the map again; empty where there is none."""
        return "" if self.options is None else self.options.command

    def to_dict(self) -> dict[str, Any]:
        """The fields and the command, as JSON has them."""
        return asdict(self) | {"command": self.command}


@dataclass(frozen=True)
class StoredMap:
    """A map from the store.

    Attributes:
        name: Name of the map.
        options: Options of ``hessmap map``; None if the map was not made by the command.
        record: The map.
    """

    name: str
    options: MapOptions | None
    record: CurvatureMap

    @property
    def command(self) -> str:
        """The command that makes the map again; empty where there is none."""
        return "" if self.options is None else self.options.command


@dataclass(frozen=True)
class TrackSummary:
    """The facts about a stored track that are available without reading its points.

    Attributes:
        name: Name of the track.
        created: Time at which it was stored first (UTC).
        network: Description of the network.
        loss: Name of the loss.
        part: The Hessian: "loss", "outer_product" or "functional".
        num_parameters: Number of parameters.
        num_samples: Number of samples that are measured on.
        num_points: Number of points.
        last_step: Step of the last point; None without points.
        share: Largest part of the time that measuring may take; None for no limit.
        seconds: Seconds of training that were tracked, measurements included.
        spent: Seconds of them that measurements took.
    """

    name: str
    created: str
    network: str
    loss: str
    part: str
    num_parameters: int
    num_samples: int
    num_points: int
    last_step: int | None
    share: float | None
    seconds: float
    spent: float


def free_name(store: Store, kind: Kind, wanted: str) -> str:
    """Find a name that is not in use.

    Args:
        store: The open store.
        kind: "map" or "track".
        wanted: The preferred name.

    Returns:
        ``wanted`` if it is free, else the first free one of "wanted-2", "wanted-3", ..
    """
    taken = {name for (name,) in store.execute(f"SELECT name FROM {kind}")}
    names = (wanted if number == 1 else f"{wanted}-{number}" for number in count(1))
    return next(name for name in names if name not in taken)


def add_map(
    store: Store, name: str, made: CurvatureMap, options: MapOptions | None = None, replace: bool = False
) -> None:
    """Store a map under a name.

    Args:
        store: The open store.
        name: The name, which must be free unless ``replace``.
        made: The map.
        options: The options of ``hessmap map`` by which its problem can be made again; None where there are none.
        replace: Put it in the place of a stored map of this name.

    Raises:
        InvalidInput: If the name is taken, or the options are not ``MapOptions``.
    """
    is_known = options is None or isinstance(options, MapOptions)
    require(is_known, "the options of a map must be MapOptions or None", f"got {short_text(options)}")
    network, origin = made.network, made.provenance
    with store.transaction():
        if replace:
            store.execute("DELETE FROM map WHERE name = ?", (name,))
        require_free_map(store, name)
        values = (
            name,
            origin.created if origin and origin.created else _now(),
            made.title,
            network.description,
            network.loss,
            network.num_parameters,
            network.num_samples,
            network.risk,
            (origin.data_hash if origin else None) or "",
            None if options is None else options.to_json(),
            made.to_json(),
            _provenance_id(store, origin),
        )
        store.execute(f"INSERT INTO map ({_MAP}, record, provenance_id) VALUES ({_places(values)})", values)


def require_free_map(store: Store, name: str) -> None:
    """Check that no map of a name is stored.

    Args:
        store: The open store.
        name: The name.

    Raises:
        InvalidInput: If a map has the name.
    """
    taken = store.execute("SELECT created FROM map WHERE name = ?", (name,))
    if taken:
        got, remedy = f"{store.path} has {name!r} of {taken[0][0]}", "Choose another name, or give --replace"
        raise InvalidInput(sentence("a map must have a unique name", got, remedy))


def map_summaries(store: Store, name: str | None = None, refused: list[str] | None = None) -> tuple[MapSummary, ...]:
    """List the maps of a store, in the order in which they were stored, without reading records.

    Args:
        store: The open store.
        name: Only the map of this name, if it exists. Default: all maps.
        refused: List to which a sentence is appended for each map that cannot be read. Default: None, an error is
            raised.

    Returns:
        The summaries.

    Raises:
        StoreError: If one cannot be read and ``refused`` is None.
    """
    found = store.execute(f"SELECT {_MAP} FROM map WHERE ?1 IS NULL OR name = ?1 ORDER BY id", (name,))
    return _summaries(store, MapSummary, found, refused)


def load_map(store: Store, name: str) -> StoredMap:
    """Load a map.

    Args:
        store: The open store.
        name: Name of the map.

    Returns:
        The map with its options.

    Raises:
        InvalidInput: If no map has the name.
        StoreError: If it cannot be read.
    """
    found = store.execute("SELECT options, record FROM map WHERE name = ?", (name,))
    if not found:
        raise _not_stored(store, "map", name, "Run hessmap map")
    ((options, record),) = found
    with store_content(store.path, f"map {short_text(name)}: "):
        return StoredMap(name, _options_of_text(options), CurvatureMap.from_json(record))


def add_track(store: Store, made: CurvatureTrack) -> None:
    """Store a track, with the points that it has, under its name.

    Args:
        store: The open store.
        made: The track, whose name must be free.

    Raises:
        InvalidInput: If the name is taken.
    """
    with store.transaction():
        require_free_track(store, made.name)
        columns = [getattr(made, column) for column in _TRACK.split(", ")[:-1]]
        values = (*columns, encode(made.settings), _now(), _provenance_id(store, made.provenance))
        store.execute(f"INSERT INTO track ({_TRACK}, created, provenance_id) VALUES ({_places(values)})", values)
        for point in made.points:
            _write_point(store, made.name, point)


def add_point(store: Store, name: str, point: TrackPoint, seconds: float, spent: float) -> None:
    """Store a point of a track, in place of an earlier one of the same step, and the times up to it.

    Args:
        store: The open store.
        name: Name of the track.
        point: The point.
        seconds: Seconds of training that were tracked.
        spent: Seconds of them that measurements took.
    """
    with store.transaction():
        _write_point(store, name, point)
        set_times(store, name, seconds, spent)


def set_times(store: Store, name: str, seconds: float, spent: float) -> None:
    """Update the times of a track.

    Args:
        store: The open store.
        name: Name of the track.
        seconds: Seconds of training that were tracked.
        spent: Seconds of them that measurements took.
    """
    store.execute("UPDATE track SET seconds = ?, spent = ? WHERE name = ?", (seconds, spent, name))


def drop_points(store: Store, name: str, from_step: int) -> None:
    """Delete the points of a track from a step on.

    Args:
        store: The open store.
        name: Name of the track.
        from_step: First step that is deleted.
    """
    store.execute(f"DELETE FROM track_point WHERE track_id = {_TRACK_ID} AND step >= ?", (name, from_step))


def drop_track(store: Store, name: str) -> None:
    """Delete a track and its points; nothing happens if there is none of the name.

    Args:
        store: The open store.
        name: Name of the track.
    """
    store.execute("DELETE FROM track WHERE name = ?", (name,))


def require_free_track(store: Store, name: str) -> None:
    """Check that no track of a name is stored.

    Args:
        store: The open store.
        name: The name.

    Raises:
        InvalidInput: If a track has the name.
    """
    taken = [track for track in track_summaries(store) if track.name == name]
    if taken:
        got = f"{store.path} has {name!r} with {taken[0].num_points} points, the last at step {taken[0].last_step}"
        remedy = "Choose another name, or pass resume=True to continue it, or replace=True to replace it"
        raise InvalidInput(sentence("a track must have a unique name", got, remedy))


def track_summaries(store: Store, refused: list[str] | None = None) -> tuple[TrackSummary, ...]:
    """List the tracks of a store, in the order in which they were stored, without reading points.

    Args:
        store: The open store.
        refused: List to which a sentence is appended for each track that cannot be read. Default: None, an error is
            raised.

    Returns:
        The summaries.

    Raises:
        StoreError: If one cannot be read and ``refused`` is None.
    """
    columns = ", ".join(TrackSummary.__dataclass_fields__)
    return _summaries(store, TrackSummary, store.execute(f"SELECT {columns} FROM tracks"), refused)


def load_track(store: Store, name: str) -> CurvatureTrack:
    """Load a track with its points in the order of their steps.

    Args:
        store: The open store.
        name: Name of the track.

    Returns:
        The track, without provenance.

    Raises:
        InvalidInput: If no track has the name.
        StoreError: If it cannot be read.
    """
    found = store.execute(f"SELECT {_TRACK} FROM track WHERE name = ?", (name,))
    if not found:
        raise _not_stored(store, "track", name, "hessmap.Tracker makes one")
    head = dict(zip(_TRACK.split(", "), found[0], strict=True))
    query = f"SELECT record FROM track_point WHERE track_id = {_TRACK_ID} ORDER BY step"
    records = store.execute(query, (name,))
    with store_content(store.path, f"track {short_text(name)}: "):
        points = tuple(TrackPoint.from_json(record) for (record,) in records)
        return typed(CurvatureTrack, head | {"settings": decode(head["settings"]), "points": points})


def _summaries(
    store: Store, kind: type[Summary], found: list[tuple[Any, ...]], refused: list[str] | None
) -> tuple[Summary, ...]:
    """One of a dataclass for each row, whose values must agree with its annotations; the first is the name."""
    read: list[Summary] = []
    for line in found:
        fields = dict(zip(kind.__annotations__, line, strict=True))
        try:
            with store_content(store.path, f"{short_text(line[0])}: "):
                if "options" in fields:
                    fields["options"] = _options_of_text(fields["options"])
                read.append(typed(kind, fields))
        except StoreError as error:
            if refused is None:
                raise
            refused.append(str(error))
    return tuple(read)


def _options_of_text(text: object) -> MapOptions | None:
    return None if text is None else MapOptions.from_json(text)


def _write_point(store: Store, name: str, point: TrackPoint) -> None:
    store.execute(_ADD_POINT, (name, point.step, _now(), point.to_json()))


def _provenance_id(store: Store, origin: Provenance | None) -> int:
    """The line of the provenance in the store, written where it is new."""
    content = {} if origin is None else {"dtype": origin.dtype, "versions": origin.versions}
    return store.provenance_id(json.dumps(content, sort_keys=True, separators=(",", ":")))


def _not_stored(store: Store, kind: Kind, name: str, remedy: str) -> InvalidInput:
    known = [str(found) for (found,) in store.execute(f"SELECT name FROM {kind} ORDER BY id")]
    if known:
        return unknown_name(kind, name, known)
    return InvalidInput(sentence(f"a {kind} must be stored before it is shown", f"{store.path} has none", remedy))


def _places(values: tuple[object, ...]) -> str:
    return ", ".join("?" for _ in values)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


_MAP = "name, created, title, network, loss, num_parameters, num_samples, risk, data_hash, options"
_TRACK = "name, network, loss, part, num_parameters, num_samples, data_hash, share, seconds, spent, settings"
_TRACK_ID = "(SELECT id FROM track WHERE name = ?)"
_ADD_POINT = f"""
    INSERT INTO track_point (track_id, step, measured, record) VALUES ({_TRACK_ID}, ?, ?, ?)
    ON CONFLICT (track_id, step) DO UPDATE SET measured = excluded.measured, record = excluded.record
"""
