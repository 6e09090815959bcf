"""A file is replaced as a whole or stays as it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hessmap.records import atomic_write


def test_a_file_is_replaced_once_the_block_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "result.bin"
    path.write_bytes(b"old")
    with atomic_write(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["result.bin"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "result.bin"
    path.write_bytes(b"old")

    def interrupted() -> None:
        with atomic_write(path) as file:
            file.write(b"a part")
            raise error("in the middle")

    with pytest.raises(error, match="in the middle"):
        interrupted()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["result.bin"]


@pytest.mark.skipif(os.name != "posix", reason="modes of files are those of POSIX")
def test_others_may_read_what_the_umask_lets_them_read(tmp_path: Path) -> None:
    plain, path = tmp_path / "plain", tmp_path / "result.bin"
    plain.touch()
    with atomic_write(path) as file:
        file.write(b"new")
    assert path.stat().st_mode == plain.stat().st_mode
