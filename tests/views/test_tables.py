"""Tables show what the records hold, and fit a terminal of 80 columns."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console, RenderableType
from synthetic_map import SIZE, curvature_map, rank_measurement

from hessmap.networks import FullyConnected
from hessmap.records import DataSetStatus, RankCertificate
from hessmap.theory import predict_ranks
from hessmap.views.tables import data_view, map_view, prediction_view, ranks_table


def printed(view: RenderableType, width: int = 80) -> str:
    stream = StringIO()
    Console(width=width, file=stream).print(view)
    return stream.getvalue()


def test_prediction_shows_every_rank_with_its_kind_and_source() -> None:
    prediction = predict_ranks(FullyConnected((64, 30, 20, 10)), input_rank=61)
    text = printed(prediction_view(prediction, "64-30-20-10"))
    for shown in ("610", "900", "1,410", "2,720", "51.8%", "exact", "Singh", "input rank 61"):
        assert shown in text


@pytest.mark.parametrize("bias", [False, True])
def test_prediction_says_when_a_rank_is_no_theorem(bias: bool) -> None:
    prediction = predict_ranks(FullyConnected((8, 6, 5, 4), bias=bias, activation="relu"))
    text = printed(prediction_view(prediction))
    assert "numerical" in text
    assert "exact" not in text.split("Sources")[0]


def test_map_fits_a_narrow_terminal_without_cutting_a_word() -> None:
    text = printed(map_view(curvature_map()))
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "…" not in text
    for shown in ("H_o (GGN)", "predicted", "share", "The first finding.", "A <second> one."):
        assert shown in text


def test_map_shows_both_networks_and_the_layers_of_the_first() -> None:
    text = printed(map_view(curvature_map()))
    linear = "Ranks of the network without activations"
    places = ("8-12-4-4 relu", "largest eigenvalue", "Layers", "Ranks of the network", linear, "Findings")
    assert [text.index(place) for place in places] == sorted(text.index(place) for place in places)
    assert "35.0%" in text
    assert linear not in printed(map_view(curvature_map(with_counterpart=False)))


def test_a_rank_that_departs_from_its_theorem_stands_out() -> None:
    linear = curvature_map().linear_counterpart
    assert linear is not None
    wrong = replace(linear.parts[0], measurement=rank_measurement(53, SIZE))
    assert "NO" in printed(ranks_table(replace(linear, parts=(wrong, *linear.parts[1:]))))
    assert "NO" not in printed(ranks_table(linear))


def test_certified_ranks_have_a_column_where_there_are_some() -> None:
    network = curvature_map().network
    assert "certified" not in printed(ranks_table(network))
    certificate = RankCertificate(123, "loss", 2**61 - 1, 1e-12, SIZE)
    certified = (*network.parts[:2], replace(network.parts[2], certificate=certificate))
    text = printed(ranks_table(replace(network, parts=certified)))
    assert "certified" in text
    assert "123" in text


def test_a_missing_prediction_is_a_dash_with_its_reason() -> None:
    made = curvature_map(with_counterpart=False)
    parts = tuple(replace(part, prediction=None) for part in made.network.parts)
    network = replace(made.network, parts=parts, prediction=None, prediction_gap="layer 2 is a convolution.")
    text = printed(map_view(replace(made, network=network)))
    assert "No prediction: layer 2 is a convolution." in text


def status(**changes: object) -> DataSetStatus:
    files = DataSetStatus("mnist", False, "/cache/mnist", 60_000, 10_000, (1, 28, 28), 10)
    return replace(files, **changes)  # type: ignore[arg-type]


def test_data_says_what_is_missing_where_it_is_wanted_and_where_it_comes_from() -> None:
    text = printed(data_view([status(missing=("train-images",), source="From there")], ["/cache"]))
    for shown in ("mnist", "no", "60,000", "train-images", "From there", "/cache/mnist"):
        assert shown in text


@pytest.mark.parametrize(("is_original", "word"), [(None, "yes"), (True, "verified"), (False, "CHANGED")])
def test_data_tells_verified_from_found_and_from_changed_files(is_original: bool | None, word: str) -> None:
    assert word in printed(data_view([status(is_present=True, is_original=is_original)], []))
