"""Files: those of the first version still load and are confirmed, and forty that are no certificates are said so."""

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
from torch import Tensor, nn

from hessmap.certificates import Certificate
from hessmap.errors import DataFileError

FIRST = Path(__file__).parent / "certificate-0.1.0.npz"


def first_data() -> tuple[Tensor, Tensor]:
    """Numbers of few bits, so that every machine has the same samples."""
    places = torch.arange(400 * 4)
    inputs = ((places * places * 7919 + places * 104729) % 251).double().reshape(400, 4) / 125 - 1
    inputs = (inputs * 64).round() / 64
    return inputs, (inputs[:, 0] + inputs[:, 1] > 0).long()


def first_initial() -> nn.Module:
    network = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)).double()
    with torch.no_grad():
        for place, parameter in enumerate(network.parameters()):
            values = torch.arange(parameter.numel()).double()
            parameter.copy_((((values * 37 + 11 * place) % 17) - 8).reshape(parameter.shape) / 16)
    return network


def test_certificate_of_the_first_version_is_confirmed() -> None:
    loaded = Certificate.load(FIRST)

    found = loaded.verify(first_initial(), first_data(), initial_model=first_initial(), seed=0)

    assert found.verdict == "confirmed", found.reasons
    assert loaded.draws == "pairs"
    assert loaded.notes == ()
    assert found.bound == pytest.approx(0.215, abs=0.01)  # by sharper inequalities than the 0.24 that is claimed


def test_names_of_arrays_stay_those_of_the_first_version() -> None:
    fields = ("weight", "log_deviations", "output_basis", "input_basis", "bias", "bias_log_deviations")
    names = [f"{layer}/{field}" for layer in (0, 2) for field in (*fields, "initial_weight", "initial_bias")]

    assert list(Certificate.load(FIRST).posterior) == names


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


def arrays() -> dict[str, np.ndarray]:
    with np.load(FIRST) as file:
        return {name: file[name] for name in file.files}


def text(**changes: Any) -> str:
    return json.dumps({**json.loads(str(arrays()["certificate"])), **changes})


def stored(path: Path, **content: np.ndarray) -> None:
    with path.open("wb") as file:
        np.savez(file, allow_pickle=True, **content)


def with_text(content: Any) -> Callable[[Path], None]:
    return lambda path: stored(path, **{**arrays(), "certificate": np.array(content)})


def with_field(name: str, value: Any) -> Callable[[Path], None]:
    return with_text(text(**{name: value}))


def without_field(name: str) -> Callable[[Path], None]:
    fields = json.loads(text())
    return with_text(json.dumps({key: value for key, value in fields.items() if key != name}))


def with_bytes(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def cut(share: float) -> Callable[[Path], object]:
    content = FIRST.read_bytes()
    return with_bytes(content[: int(len(content) * share)])


def damaged(path: Path) -> None:
    """Compressed bytes in the middle of a member are others."""
    content = bytearray(FIRST.read_bytes())
    for place in range(300, 340):
        content[place] ^= 0x5A
    path.write_bytes(bytes(content))


def zipped(**members: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as file:
            for name, content in members.items():
                file.writestr(f"{name}.npy", content)

    return write


def with_header(header: str) -> bytes:
    """An array file whose header says something else."""
    padded = header.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded.encode()


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a foreign file was unpickled",))


ODD_FILES: dict[str, Callable[[Path], object]] = {
    "absent": lambda path: None,
    "a folder": lambda path: path.mkdir(),
    "empty": with_bytes(b""),
    "words": with_bytes(b"not a certificate"),
    "zeros": with_bytes(bytes(5000)),
    "half of a file": cut(0.5),
    "nearly a file": cut(0.99),
    "start of a file": cut(0.02),
    "damaged inside": damaged,
    "one array": lambda path: np.save(path, np.zeros(3)) or path.with_suffix(".npz.npy").rename(path),
    "a pickle": with_bytes(pickle.dumps(Evil())),
    "a torch file": lambda path: torch.save({"certificate": 1}, path),
    "a text file of JSON": lambda path: path.write_text(text()),
    "an empty archive": zipped(),
    "an archive of words": zipped(certificate=b"hello"),
    "no certificate": lambda path: stored(path, something=np.zeros(2)),
    "certificate of numbers": with_text(3.0),
    "certificate of many texts": with_text(["{}", "{}"]),
    "certificate of bytes": with_text(b"{}"),
    "objects": lambda path: stored(path, certificate=np.array(Evil(), dtype=object)),
    "a header of a terabyte": zipped(
        certificate=with_header("{'descr': '<f8', 'fortran_order': False, 'shape': (10**12,), }"),
    ),
    "a header of many bytes": zipped(
        certificate=with_header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"),
    ),
    "a header of nonsense": zipped(certificate=with_header("{'descr': ]")),
    "no JSON": with_text("{"),
    "JSON of a list": with_text("[1, 2]"),
    "JSON of a number": with_text("3"),
    "deep JSON": with_text("[" * 100_000 + "]" * 100_000),
    "JSON without fields": with_text("{}"),
    "another record": with_field("record", "Provenance"),
    "an unknown record": with_field("record", "Promise"),
    "a field more": with_field("colour", "red"),
    "a field less": without_field("kl"),
    "bound of text": with_field("bound", "low"),
    "bound of nothing": with_field("bound", None),
    "bound of NaN": with_field("bound", {"float": "nan"}),
    "bound of infinity": with_field("bound", {"float": "inf"}),
    "bound of nonsense": with_field("bound", {"float": "x"}),
    "bound of a list": with_field("bound", [0.1]),
    "bound of an array": with_field("bound", {"array": [1], "shape": [2], "dtype": "float64"}),
    "array of an unknown type": with_field("bound", {"array": [1], "shape": [1], "dtype": "colour"}),
    "draws of a fraction": with_field("num_draws", 2.5),
    "draws of truth": with_field("num_draws", True),
    "draws beyond floats": with_field("num_draws", 10**400),
    "kl beyond floats": with_field("kl", 10**400),
    "doubts of numbers": with_field("doubts", [1, 2]),
    "doubts of one text": with_field("doubts", "none"),
    "settings of a number": with_field("settings", 3),
    "hash of a number": with_field("data_hash", 7),
}


@pytest.mark.parametrize("name", ODD_FILES)
def test_file_that_is_no_certificate_is_said_to_be_none(tmp_path: Path, name: str) -> None:
    path = tmp_path / "odd.npz"
    ODD_FILES[name](path)

    with pytest.raises(
        DataFileError, match=r"a certificate must (be readable|hold what its fields say); .*odd\.npz"
    ) as caught:
        Certificate.load(path)

    assert "\n" not in str(caught.value)


def test_file_with_other_arrays_loads_and_is_refused(tmp_path: Path) -> None:
    known = arrays()
    for name, array in {
        "0/weight": known["0/weight"].astype(complex),
        "0/bias": np.array(["a", "b"]),
        "2/weight": np.zeros((2, 5), dtype=np.int8),
        "2/bias": np.zeros((0,), dtype=np.float32),
    }.items():
        path = tmp_path / "other.npz"
        stored(path, **{**known, name: array})
        found = Certificate.load(path).verify(first_initial(), first_data(), initial_model=first_initial())
        assert found.verdict == "refused"
        assert f"{name} is " in found.reasons[0]
