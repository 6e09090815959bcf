"""``hessmap predict``: the three ranks of a fully connected network, from integers alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

if TYPE_CHECKING:
    from hessmap.results import Truth

EXAMPLES = """
[bold]Examples[/bold]

  hessmap predict 64-30-20-10 --loss squared --input-rank 61\n
  hessmap predict 64-30-20-10 --loss cross_entropy\n
  hessmap predict 64-30-20-10 --bias --centred-input-rank 60\n
  hessmap predict '64-30-20-10 relu' --json
"""


def predict(
    network: Annotated[str, typer.Argument(help="Widths from input to output, as 64-30-20-10.")],
    loss: Annotated[str, typer.Option(help="squared, cross_entropy or log_cosh.")] = "squared",
    activation: Annotated[str, typer.Option(help="identity (linear network), relu, tanh, ...")] = "identity",
    bias: Annotated[bool, typer.Option("--bias", help="Every layer has a bias.")] = False,
    input_rank: Annotated[
        int | None,
        typer.Option(help="Rank of the sum of x xᵀ over the inputs; unless given, the input width."),
    ] = None,
    centred_input_rank: Annotated[
        int | None, typer.Option(help="With --bias: rank of the covariance of the inputs.")
    ] = None,
    residual_rank: Annotated[
        int | None,
        typer.Option(help="Rank of the sum of (dloss/doutput) xᵀ; with --bias, x with a 1 appended."),
    ] = None,
    mean_residual_is_zero: Annotated[
        bool, typer.Option("--mean-residual-is-zero", help="With --bias: the last bias has gradient 0.")
    ] = False,
    kind: Annotated[
        str | None, typer.Option(help="exact, upper_bound or numerical; unless given, the strongest there is.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON, nothing else.")] = False,
) -> None:
    """Predict the ranks of the Hessians from the architecture.

    Three ranks: of the outer-product Hessian H_o, of the functional Hessian
    H_f and of the loss Hessian H_L = H_o + H_f, each with the kind of truth
    it is: exact (a theorem about generic weights), an upper bound (a
    theorem), or numerical (the size of the bulk of a network with
    activations; no theorem, no bound).
    """
    from hessmap.networks import FullyConnected
    from hessmap.theory import predict_ranks

    described = FullyConnected.parse(network)
    if bias or activation != "identity":
        described = FullyConnected(
            described.widths,
            bias=bias or described.bias,
            activation=activation if activation != "identity" else described.activation,
        )
    prediction = predict_ranks(
        described,
        loss=loss,
        input_rank=input_rank,
        residual_rank=residual_rank,
        centred_input_rank=centred_input_rank,
        mean_residual_is_zero=mean_residual_is_zero,
        kind=cast("Truth | None", kind),
    )
    if as_json:
        typer.echo(prediction.to_json(indent=2))
        return
    from rich.console import Console

    from hessmap.views.tables import prediction_view

    Console().print(prediction_view(prediction, title=f"{described}, {loss} loss"))

