"""The options of ``hessmap map`` as data: what a stored map was made of, and the command that makes it again."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Self

from hessmap.errors import InvalidInput, sentence, short_text
from hessmap.records.commands import command_line
from hessmap.records.field_types import require_field_types
from hessmap.records.strict_json import parsed_json

_FLAGS = {  # options without a value: the word for True, the word for False
    "bias": ("--bias", ""),
    "twin": ("--twin", "--no-twin"),
    "certify": ("--certify", "--no-certify"),
    "dense": ("--dense", "--estimate"),
}


@dataclass(frozen=True)
class MapOptions:
    """The options of ``hessmap map`` that determine a map, with the defaults of the command.

    Where the map is written to (``--store``, ``--output``, ``--replace``) is not among them. ``model`` and ``data``
    may be references, ``package.module:attribute``.
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
    twin: bool = True
    certify: bool | None = None
    seconds: float = 60.0
    dense: bool | None = None
    name: str | None = None

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
        given = [self.model] if self.model is not None else []
        return tuple(dict.fromkeys([*given, *([self.data] if ":" in self.data else [])]))

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
