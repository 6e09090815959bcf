"""Odd command lines: each ends in one sentence and an exit code, none in a traceback, and none leaves a file behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from command_lines import assert_one_sentence, enter, odd_folder
from hessmap.cli import app

FILES = {
    "mine.py": r"""
import torch
from torch import nn
net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).double()
lazy, meta = nn.LazyLinear(2), nn.Linear(4, 2, device="meta")
inputs, labels = torch.ones(20, 4).double(), torch.arange(20) % 2
data, wide, empty = (inputs, labels), (torch.ones(20, 7).double(), labels), (inputs[:0], labels[:0])
broken_numbers, strings, number, nothing = (inputs * float("nan"), labels), ("a", "b"), 3, None
def needs(argument): return argument
def raises(): raise RuntimeError("no\nway [/b]")
def exits(): raise SystemExit(3)
class Failing(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
    def forward(self, x): raise KeyError("my own")
failing = Failing()
""",
}
OWN = "--data mine:data"
LINES = f"""
predict attention-4
predict attention-4-2x --num-tokens 3
predict attention-4-2 --num-tokens 0
predict attention-4-2 --activation relu
predict attention-4-2 --bias
predict attention-4-2 --residual-rank 1
predict attention-4-2 --input-rank 5
predict 'attention-4-2 shared'
predict 4-3-2 --num-tokens 5
predict residual-8
predict residual-8x0
predict 'residual-8x3 trained'
predict residual-8x3 --input-rank 9
map --widths 5-5
map --widths 64-5-5
map --widths 64
map --widths 64-x-10
map --widths ''
map --widths 64-0-10
map --widths 64-99999999999-10
map --seed -1
map --seed 99999999999999999999999999
map --seed 1.5
map --epochs -1
map --samples 0
map --samples 999999999
map --side 0
map --side 99999
map --data nowhere
map --data mine:absent
map --data mine:strings
map --data mine:number
map --data mine:nothing
map --data :
map --data mine:
map --data mine:raises
map --data mine:exits
map --data mine:needs
map --loss nope {OWN}
map --activation nope
map mine:net
map mine:net {OWN} --widths 4-3-2
map mine:net {OWN} --name 'a b'
map mine:net {OWN} --name ''
map mine:net {OWN} --output a_file
map mine:net {OWN} --output a_file/folder
map mine:net {OWN} --store a_file
map mine:net {OWN} --store a_folder
map mine:net {OWN} --store other.sqlite
map mine:net {OWN} --store a_file/x.sqlite
map mine:net {OWN} --store ''
map mine:net {OWN} --samples 5
map mine:net --data mine:wide
map mine:net --data mine:empty
map mine:net --data mine:broken_numbers
map mine:lazy {OWN}
map mine:meta {OWN}
map mine:failing {OWN}
map mine:raises {OWN}
map mine:exits {OWN}
map mine:number {OWN}
map mine:net.absent {OWN}
map no_python:net {OWN}
map failing:net {OWN}
map leaving:net {OWN}
map wanting:net {OWN}
map lying:net {OWN}
map absent:net {OWN}
map .relative:net {OWN}
map word
map --no-such-option
maps show
maps show absent
maps show absent --html a_folder
maps list --store other.sqlite
maps compare one
maps compare one two --figure x.gif
maps compare one two --figure a_file/x.png
tracks show absent
tracks show absent --figure a_folder
tracks checkpoints mine:net
tracks checkpoints mine:net absent.pt {OWN}
tracks checkpoints mine:net junk.pt {OWN}
tracks checkpoints mine:net a_folder {OWN}
tracks checkpoints mine:net junk.pt --samples 0
predict
predict ''
predict 5
predict 5-5 --loss nope
learning exact 5-5
learning exact 5-5 --rank 6
learning exact '5-5-5 relu' --rank 1
learning exact conv-1x20-8x3-10 --rank 1
learning estimate --widths 5-5-10 nope:net
learning estimate --draws 3
learning estimate --figure chains.txt
predict 5-5 --input-rank -1
predict 5-5 --input-rank x
predict 5-5 --kind nope
predict '5-5 nope'
predict conv-1x2-8x30-10
predict local-5x4-3-10 --bias
function --samples 1
function --seed -3
function --figure x.gif
function --figure a_folder
function mine:net --data mine:wide
function mine:net --data mine:strings
function mine:net --data mine:number
function mine:failing --data mine:inputs
function --data mine:inputs
certify --seed -1
certify --save a_folder
certify --save a_file/x.npz
certify --checkpoint a_folder
certify --data mine:data
certify mine:net --data mine:data
certify mine:net --initial mine:net --data mine:strings
data --no-such-option
absent
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return odd_folder(tmp_path_factory.mktemp("odd"), FILES)


@pytest.fixture(autouse=True)
def _in_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(folder, monkeypatch)


@pytest.mark.parametrize("line", LINES.strip().splitlines())
def test_an_odd_command_line_ends_in_one_sentence(line: str, folder: Path) -> None:
    assert_one_sentence(line, folder)


def test_what_nobody_foresaw_is_one_sentence_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr("hessmap.datasets.available", fail)
    result = CliRunner().invoke(app, ["data"])
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("hessmap: this is a bug in hessmap; ZeroDivisionError: two lines (")
    shown = CliRunner().invoke(app, ["--debug", "data"])
    assert isinstance(shown.exception, ZeroDivisionError)


def test_an_error_of_the_users_model_names_the_line_of_the_users_file() -> None:
    result = CliRunner().invoke(app, ["map", "mine:failing", "--data", "mine:data"])
    line = FILES["mine.py"].splitlines().index('    def forward(self, x): raise KeyError("my own")') + 1
    assert f"your own code must run without errors; KeyError: 'my own' (mine.py, line {line})" in result.stderr
