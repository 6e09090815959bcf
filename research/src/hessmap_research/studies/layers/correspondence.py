"""Which eigenvectors of the two factors a layer Hessian's top eigenvectors are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import Column, Heatmap, View
from hessmap_research.studies.layers import layer_cases as shared

_SHOWN = 20  # rows and columns of a matrix, as in the paper's Figure 23
_DRAWN_SEED = 0
_DIGITS = 4


def cases(data: str) -> tuple[Case, ...]:
    small = shared.layer_cases(shared.TRAINED[data])
    return (*small, *shared.cases_on_all_images(data), *shared.cases_by_own_recipe(data))


def measure(case: Case) -> dict[str, Any]:
    from hessmap_research.instruments.matricisation import input_correspondence, output_correspondence
    from hessmap_research.studies.layers.measured_layer import eigenpairs_of, hessian_of

    hessian = hessian_of(case)
    found = eigenpairs_of(case, hessian)
    assert found.eigenvectors is not None
    product = hessian.kronecker_approximation()
    top = found.eigenvectors[:, :_SHOWN]
    inputs = input_correspondence(top, product.input_eigenpairs[1])
    outputs = output_correspondence(top, product.output_eigenpairs[1])
    pairs = product.leading(top.shape[1])
    record: dict[str, Any] = {
        "first_nine": _numbers(inputs[:, : shared.NUM_OUTLIERS], outputs[:, : shared.NUM_OUTLIERS]),
        "later": _numbers(inputs[:, shared.NUM_OUTLIERS :], outputs[:, shared.NUM_OUTLIERS :]),
        "diagonal": float(outputs[: shared.NUM_OUTLIERS, : shared.NUM_OUTLIERS].diagonal().mean()),
        "expected_on_mean": float((pairs.input_index[: shared.NUM_OUTLIERS] == 0).double().mean()),
        "are_all_found": found.converged,
    }
    if case["seed"] == _DRAWN_SEED:
        record["matrices"] = {
            "input": inputs[:_SHOWN].round(_DIGITS),
            "output": outputs[:_SHOWN].round(_DIGITS),
            "input_of_product": _pattern(pairs.input_index),
            "output_of_product": _pattern(pairs.output_index),
        }
    return record


def _numbers(inputs: Any, outputs: Any) -> dict[str, float]:
    """Shares of some eigenvectors (columns): over v_1, and over the first c - 1 of the u_i."""
    return {"on_mean": float(inputs[0].mean()), "on_outliers": float(outputs[: shared.NUM_OUTLIERS].sum(axis=0).mean())}


def _pattern(index: Any) -> Any:
    """The correspondence matrix of u_i (x) v_j: a one in every column, at its index."""
    import numpy as np

    count = len(index)
    matrix = np.zeros((count, count))
    inside = index.numpy() < count
    matrix[index.numpy()[inside], np.arange(count)[inside]] = 1.0
    return matrix


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """The paper's words: a horizontal stripe at v_1, a diagonal over u_i, both of which stop at c - 1."""
    yield shared.convergence_claim(rows)
    yield from _convolutions([row for row in rows if row["layer"].startswith("conv")])
    linear = [row for row in rows if row["layer"].startswith("fc")]
    for data, network, chosen in shared.by_network(linear):
        hidden = [row for row in chosen if row["layer"] != shared.layers_of(network)[-1]]
        where, training = f"{network} on {data}", shared.training_id(chosen[0])
        for base, claim, some, name in (
            ("stripe", "top nine eigenvectors lie over v_1 by more than half", chosen, "first_nine.on_mean"),
            (
                "diagonal",
                "hidden layers, top nine lie over the first nine u_i by more than half",
                hidden,
                "first_nine.on_outliers",
            ),
        ):
            found = shared.by_layer(some, name)
            yield Claim(
                claim_id(base, training), f"{where}: {claim}", min(map(min, found.values())) > 0.5, shared.ranges(found)
            )
        falls = [row.number("first_nine.on_mean") - row.number("later.on_mean") for row in hidden]
        detail = f"by {min(falls):.2f} to {max(falls):.2f}"
        claim = f"{where}: hidden layers, eigenvectors 10 to 20 lie less over v_1 than the first nine"
        yield Claim(claim_id("later-less-on-mean", training), claim, min(falls) > 0, detail)


def _convolutions(rows: Sequence[Row]) -> Iterator[Claim]:
    """Appendix F.3 of convolutions: the stripe as in linear layers, and no diagonal, since E[M] is not exact."""
    for data, network, chosen in shared.by_network(rows):
        for layer in ("conv1", "conv2"):
            same = [row for row in chosen if row["layer"] == layer]
            if same:
                where, training = f"{layer} of {network} on {data}", shared.training_id(same[0])
                found = shared.by_layer(same, "first_nine.on_mean")
                claim = f"{where}: top nine eigenvectors lie over v_1 by more than half"
                yield Claim(
                    claim_id("stripe", training, layer),
                    claim,
                    min(map(min, found.values())) > 0.5,
                    shared.ranges(found),
                )
                found = shared.by_layer(same, "diagonal")
                claim = f"{where}: no diagonal, h_i lies over u_i by less than half"
                yield Claim(
                    claim_id("no-diagonal", training, layer),
                    claim,
                    max(map(max, found.values())) < 0.5,
                    shared.ranges(found),
                )


def _matrices(data: str, network: str, epochs: int, layer: str, more: str = "") -> tuple[Heatmap, ...]:
    return tuple(
        Heatmap(
            title=f"{network} on {data}, {layer}{more}: {words}",
            where={"data": data, "network": network, "epochs": epochs, "layer": layer, "seed": _DRAWN_SEED},
            value=f"matrices.{name}",
            limits=(0.0, 1.0),
            x_label="eigenvector of the layer Hessian" if "product" not in name else "of the Kronecker product",
            y_label=f"eigenvector of {'E[xx$^T$]' if name.startswith('input') else 'E[M]'}",
        )
        for name, words in (
            ("input", "over $v_i$"),
            ("input_of_product", "product, $v_i$"),
            ("output", "over $u_i$"),
            ("output_of_product", "product, $u_i$"),
        )
    )


STUDY = Study(
    name="layers/correspondence",
    question="Which eigenvectors of the two factors make up the top eigenvectors of a layer's Hessian?",
    reference="Wu et al. 2022, appendix F.3, Figures 11 to 18 and 23 to 25",
    cases=cases,
    measure=measure,
    data=shared.DATA,
    claims=claims,
    seconds=shared.seconds_of,
    families={
        "stripe": "Top nine eigenvectors lie over v_1 by more than half",
        "no-diagonal": "Convolutions: no diagonal, h_i lies over u_i by less than half",
        "diagonal": "Hidden layers: top nine lie over the first nine u_i by more than half",
        "later-less-on-mean": "Hidden layers: eigenvectors 10 to 20 lie less over v_1 than the first nine",
    },
    view=View(
        figures=(
            *_matrices("digits", "F-100^2", 300, "fc1"),
            *_matrices("digits", "F-100^2", 300, "fc2"),
            *_matrices("mnist", "F-200^2", 60, "fc2"),
            *_matrices("mnist", "LeNet5", 30, "fc1"),
            *_matrices("fashion_mnist", "F-200^2", 40, "fc2"),
            *_matrices("cifar10", "LeNet5", 90, "fc1", ", all, momentum"),
            *_matrices("cifar10", "LeNet5", shared.OWN_RECIPE["epochs"], "fc1", ", all, as the paper"),
        ),
        table=(
            *shared.LAYER,
            Column("size", "images", said={"long": "all"}),
            Column("first_nine.on_mean", "1-9 over v_1", ".3f"),
            Column("expected_on_mean", "of the product", ".3f"),
            Column("later.on_mean", "10-20 over v_1", ".3f"),
            Column("first_nine.on_outliers", "1-9 over u_1..u_9", ".3f"),
            Column("later.on_outliers", "10-20", ".3f"),
            Column("diagonal", "h_i over u_i", ".3f"),
        ),
        group_by=(*shared.LAYER, "size"),
        panels_in_a_row=4,
    ),
    answered=Answer(
        "The mean input v_1 and the first nine u_i, for the top nine of linear layers on digits, MNIST and, by the"
        " paper's own recipe, CIFAR-10; on Fashion-MNIST and by other trainings less lies over v_1, and convolutions"
        " have no diagonal over u_i.",
        num_claims=38,
        fails=(
            "stripe-lenet5-mnist-conv1",
            "stripe-f-200-2-fashion-mnist",
            "stripe-lenet5-cifar10",
            "stripe-lenet5-cifar10-long",
        ),
    ),
)
