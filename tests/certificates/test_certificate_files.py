"""Files of certificates: whole or not there, and others are named as unreadable."""

from __future__ import annotations

import dataclasses
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hessmap.certificates import Certificate
from hessmap.errors import DataFileError


def test_saved_file_is_whole_and_for_everybody(certificate: Certificate, tmp_path: Path) -> None:
    certificate.save(tmp_path / "new" / "certificate.npz")
    (tmp_path / "plain").touch()

    assert [path.name for path in (tmp_path / "new").iterdir()] == ["certificate.npz"]
    assert (tmp_path / "new" / "certificate.npz").stat().st_mode == (tmp_path / "plain").stat().st_mode
    with pytest.raises(TypeError, match="not an array"):
        dataclasses.replace(certificate, posterior={"0/weight": Unsaved()}).save(tmp_path / "broken.npz")
    assert not (tmp_path / "broken.npz").exists()


class Unsaved:
    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("not an array")


@pytest.fixture(scope="module")
def saved(certificate: Certificate, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "certificate.npz"
    certificate.save(path)
    return path


Writer = Callable[[Path, Path], object]  # to a path, from that of a certificate


def changed(path: Path, saved: Path, change: Callable[[str], str]) -> None:
    """A copy of the archive with another header."""
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(old.read(name).decode()) if name == "record.json" else old.read(name))


def with_text(content: str) -> Writer:
    return lambda path, saved: changed(path, saved, lambda text: content)


def with_field(name: str, value: Any) -> Writer:
    return lambda path, saved: changed(path, saved, lambda text: json.dumps({**json.loads(text), name: value}))


def without_field(path: Path, saved: Path) -> None:
    changed(path, saved, lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != "kl"}))


def with_bytes(content: bytes) -> Writer:
    return lambda path, saved: path.write_bytes(content)


def cut(share: float) -> Writer:
    return lambda path, saved: path.write_bytes(saved.read_bytes()[: int(saved.stat().st_size * share)])


def damaged(path: Path, saved: Path) -> None:
    """Compressed bytes in the middle of a member are others."""
    content = bytearray(saved.read_bytes())
    for place in range(300, 340):
        content[place] ^= 0x5A
    path.write_bytes(bytes(content))


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a foreign file was unpickled",))


ODD_FILES: dict[str, Writer] = {
    "absent": lambda path, saved: None,
    "a folder": lambda path, saved: path.mkdir(),
    "empty": with_bytes(b""),
    "words": with_bytes(b"not a certificate"),
    "zeros": with_bytes(bytes(5000)),
    "half of a file": cut(0.5),
    "nearly a file": cut(0.99),
    "start of a file": cut(0.02),
    "damaged inside": damaged,
    "one array": lambda path, saved: np.save(path, np.zeros(3)) or path.with_suffix(".npz.npy").rename(path),
    "a pickle": with_bytes(pickle.dumps(Evil())),
    "a torch file": lambda path, saved: torch.save({"certificate": 1}, path),
    "no certificate": lambda path, saved: np.savez(path, something=np.zeros(2)),
    "a number": with_text("3.0"),
    "no JSON": with_text("{"),
    "JSON of a list": with_text("[1, 2]"),
    "another record": with_field("record", "Provenance"),
    "a field more": with_field("colour", "red"),
    "a field less": without_field,
    "bound of text": with_field("bound", "low"),
    "bound of nothing": with_field("bound", None),
    "draws of a fraction": with_field("num_draws", 2.5),
    "doubts of numbers": with_field("doubts", [1, 2]),
    "settings of a number": with_field("settings", 3),
}


@pytest.mark.parametrize("name", ODD_FILES)
def test_file_that_is_no_certificate_is_said_to_be_none(tmp_path: Path, saved: Path, name: str) -> None:
    path = tmp_path / "odd.npz"
    ODD_FILES[name](path, saved)

    with pytest.raises(DataFileError, match=r"must .*; .*odd\.npz") as caught:
        Certificate.load(path)

    assert "\n" not in str(caught.value)
