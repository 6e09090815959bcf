"""``hessmap predict``: the same numbers as predict_ranks, as a table or as JSON."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from hessmap.cli import app
from hessmap.networks import Architecture, Convolutional, FullyConnected, LocallyConnected, parse_network
from hessmap.records import RankPrediction
from hessmap.theory import predict_ranks

runner = CliRunner()


def predicted(*arguments: str) -> RankPrediction:
    done = runner.invoke(app, ["predict", *arguments, "--json"])
    assert done.exit_code == 0, done.stderr
    return RankPrediction.from_json(done.stdout)


def test_the_table_shows_the_three_ranks() -> None:
    done = runner.invoke(app, ["predict", "64-30-20-10", "--loss", "squared", "--input-rank", "61"])
    assert done.exit_code == 0
    for shown in ("610", "900", "1,410", "2,720", "exact"):
        assert shown in done.stdout


@pytest.mark.parametrize(
    ("arguments", "network", "options"),
    [
        (["64-30-20-10", "--input-rank", "61"], FullyConnected((64, 30, 20, 10)), {"input_rank": 61}),
        (["6-5-4", "--residual-rank", "1"], FullyConnected((6, 5, 4)), {"residual_rank": 1}),
        (["6-5-4", "--loss", "cross_entropy"], FullyConnected((6, 5, 4)), {"loss": "cross_entropy"}),
        (
            ["6-5-4", "--bias", "--centred-input-rank", "5", "--mean-residual-is-zero"],
            FullyConnected((6, 5, 4), bias=True),
            {"centred_input_rank": 5, "mean_residual_is_zero": True},
        ),
        (["6-5-4", "--activation", "relu"], FullyConnected((6, 5, 4), activation="relu"), {}),
        (["6-5-4 relu bias"], FullyConnected((6, 5, 4), bias=True, activation="relu"), {}),
        (["64-30b-10"], FullyConnected((64, 30, 10), bias=(True, False)), {}),
        (["conv-1x9-3x4b-4"], Convolutional(9, (1, 3), (4,), outputs=4, bias=(True, False)), {}),
        (["6-5-4", "--num-samples", "3"], FullyConnected((6, 5, 4)), {"num_samples": 3}),
        (
            ["6-5-4 relu", "--kind", "upper_bound"],
            FullyConnected((6, 5, 4), activation="relu"),
            {"kind": "upper_bound"},
        ),
        (
            ["conv-1x9-3x4-2x2/2-4", "--loss", "cross_entropy"],
            Convolutional(9, (1, 3, 2), (4, 2), (1, 2), 4),
            {"loss": "cross_entropy"},
        ),
        (["conv-1x9-3x4-4", "--bias"], Convolutional(9, (1, 3), (4,), outputs=4, bias=True), {}),
        (
            ["local-3x2-4-5 shared", "--activation", "relu"],
            LocallyConnected(3, 2, 4, 5, shared_weights=True, activation="relu"),
            {},
        ),
    ],
)
def test_every_option_reaches_the_formula(
    arguments: list[str], network: Architecture, options: dict[str, object]
) -> None:
    assert predicted(*arguments) == predict_ranks(network, **options)  # type: ignore[arg-type]


def test_a_conjecture_is_shown_with_its_evidence() -> None:
    done = runner.invoke(app, ["predict", "64-30b-10"])
    assert done.exit_code == 0
    text = " ".join(done.stdout.split())
    for shown in ("650", "600", "1,150", "conjecture", "not proved; no counterexample in 1,800 networks"):
        assert shown in text


def test_a_bias_said_twice_is_refused() -> None:
    done = runner.invoke(app, ["predict", "64-30b-10", "--bias"])
    assert done.exit_code == 2
    assert "64-30b-10 names the layers that have one. Leave --bias or the b out." in done.stderr


def test_a_text_that_is_no_network_is_refused_with_the_shape_that_is() -> None:
    done = runner.invoke(app, ["predict", "64x30x10"])
    assert done.exit_code == 2
    assert "64-30-20-10" in done.stderr


def test_a_rank_above_the_input_width_is_refused() -> None:
    done = runner.invoke(app, ["predict", "6-5-4", "--input-rank", "7"])
    assert done.exit_code == 2
    assert "input_rank must be at most 6" in done.stderr


def test_help_teaches_how_convolutions_and_patches_are_written() -> None:
    done = runner.invoke(app, ["predict", "--help"])
    for shown in ("conv-CHANNELSxLENGTH", "conv-1x20-8x3-10", "local-PATCHESxSIZE-FILTERS-OUTPUTS", "local-5x4-3-10"):
        assert shown in done.stdout


def test_a_bias_where_there_can_be_none_is_refused() -> None:
    done = runner.invoke(app, ["predict", "local-3x2-4-5", "--bias"])
    assert done.exit_code == 2
    assert "only fully connected and convolutional networks have a bias; --bias is given" in done.stderr


def test_attention_and_residual_networks_are_predicted_and_taught() -> None:
    line = ["predict", "attention-3-1-2", "--num-samples", "20", "--num-tokens", "2", "--json"]
    found = json.loads(runner.invoke(app, line).stdout)
    assert [found[part]["value"] for part in ("outer_product", "functional", "loss")] == [10, 11, 12]
    found = json.loads(runner.invoke(app, ["predict", "residual-3x2/1", "--residual-rank", "1", "--json"]).stdout)
    assert [found[part]["value"] for part in ("outer_product", "functional", "loss")] == [8, 8, 12]
    shown = runner.invoke(app, ["predict", "--help"]).stdout
    for taught in ("attention-WIDTH-KEYS-VALUES", "residual-WIDTHxBLOCKS", "--num-tokens"):
        assert taught in shown


@pytest.mark.parametrize("columns", [80, 50, 40])
def test_no_number_is_cut_on_any_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    network = "conv-3x320000-1600000x3-1600000x3-1000000"
    shown = runner.invoke(app, ["predict", network]).stdout
    found = predict_ranks(parse_network(network))
    numbers = (found.outer_product.value, found.functional.value, found.loss.value, found.num_parameters)
    assert all(f"{number:,}" in shown for number in numbers)
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= columns


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        ("residual-8x3/2 trained_foo", "got 'trained_foo'. Did you mean 'trained_output' or 'trained_input'?"),
        ("residual-8x3/2 relu trained_foo", "got 'trained_foo'. Did you mean 'trained_output' or 'trained_input'?"),
        ("64-30-10 biass", "got 'biass'. Did you mean 'bias'?"),
        ("local-5x4-3-10 sharing", "got 'sharing'. Did you mean 'shared'?"),
        ("conv-1x20-8x3-10 foo", "must be one of bias, identity, relu"),
    ],
)
def test_a_word_that_nobody_knows_is_answered_with_all_that_may_stand_there(network: str, sentence: str) -> None:
    done = runner.invoke(app, ["predict", network])
    assert done.exit_code == 2
    said = " ".join(done.stderr.split())
    assert "an option after the sizes must be one of" in said
    assert sentence in said
