"""``hessmap predict``: the three ranks of a network, from integers alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from hessmap.cli.options import AsJson, console, echo_json
from hessmap.errors import InvalidInput, sentence

if TYPE_CHECKING:
    from hessmap.networks import Architecture
    from hessmap.records import ClaimKind, RankPrediction

EXAMPLES = """
[bold]Examples[/bold]

  hessmap predict 64-30-20-10 --loss squared --input-rank 61\n
  hessmap predict 64-30-20-10 --loss cross_entropy\n
  hessmap predict 64-30-20-10 --bias --centred-input-rank 60\n
  hessmap predict 64-30b-10                   [dim]# a bias in one layer[/dim]\n
  hessmap predict 12-8-4 --check              [dim]# in exact arithmetic[/dim]\n
  hessmap predict '64-30-20-10 relu' --json\n
  hessmap predict conv-1x20-8x3-10            [dim]# 8 filters of 3 taps[/dim]\n
  hessmap predict conv-1x20-8x3-16x3/2-10     [dim]# the second by 2[/dim]\n
  hessmap predict conv-3x32x32-16x3x3+1-10    [dim]# images, padded[/dim]\n
  hessmap predict local-5x4-3-10              [dim]# 5 patches of 4[/dim]\n
  hessmap predict 'local-5x4-3-10 shared'     [dim]# the same filters[/dim]\n
  hessmap predict attention-16-4-8 --num-samples 5 --num-tokens 7\n
  hessmap predict 'attention-16-2x4-8-10 causal'  [dim]# 2 heads, 10 outputs[/dim]\n
  hessmap predict residual-8x3/2              [dim]# 3 blocks of inner width 2[/dim]\n
  hessmap predict 'residual-5-8x3-4 trained_input' --residual-rank 2
"""

_NETWORK = (
    "Fully connected: widths from input to output, 64-30-20-10. Convolutional: conv-CHANNELSxLENGTH, then "
    "-FILTERSxKERNEL for each convolution (/2 after it: stride 2, +1: padding 1), then -OUTPUTS; on images "
    "conv-CHANNELSxHEIGHTxWIDTH and -FILTERSxHEIGHTxWIDTH. "
    "A b after a layer gives it a bias: 64-30b-10. "
    "Locally connected: local-PATCHESxSIZE-FILTERS-OUTPUTS. In quotes an activation may follow, and bias or shared. "
    "Linear self-attention: attention-WIDTH-KEYS-VALUES, 2xKEYS for 2 heads, -OUTPUTS after it for a projection; in "
    "quotes merged, frozen_value, causal or last may follow. "
    "Residual: residual-WIDTHxBLOCKS, /INNER after it for blocks of two layers, INPUTS- before and -OUTPUTS after it "
    "for ends of other widths; in quotes trained_input or trained_output may follow."
)


def predict(
    network: Annotated[str, typer.Argument(help=_NETWORK)],
    loss: Annotated[str, typer.Option(help="squared, cross_entropy or log_cosh.")] = "squared",
    activation: Annotated[str, typer.Option(help="identity (linear network), relu, tanh, ...")] = "identity",
    bias: Annotated[bool, typer.Option("--bias", help="Every layer has a bias.")] = False,
    input_rank: Annotated[
        int | None,
        typer.Option(help="Rank of the sum of x xᵀ over the inputs. Default: the number of inputs."),
    ] = None,
    centred_input_rank: Annotated[
        int | None, typer.Option(help="With a bias: rank of the covariance of the inputs.")
    ] = None,
    residual_rank: Annotated[
        int | None,
        typer.Option(help="Rank of the sum of (dloss/doutput) xᵀ; with a bias, x with a 1 appended."),
    ] = None,
    mean_residual_is_zero: Annotated[
        bool, typer.Option("--mean-residual-is-zero", help="With a bias: the last bias has gradient 0.")
    ] = False,
    num_samples: Annotated[
        int | None, typer.Option(help="The number of samples, which bounds the ranks of the data.")
    ] = None,
    num_tokens: Annotated[
        int | None, typer.Option(help="Self-attention: the tokens of a sample. Default: many.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(help="exact, upper_bound, conjecture or numerical. Default: the strongest known."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Find the ranks of a generic network in exact arithmetic as well, and compare."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Predict the ranks of the Hessians from the architecture.

    Three ranks: of the outer-product Hessian H_o, of the functional Hessian
    H_f and of the loss Hessian H_L = H_o + H_f, each with its kind: exact (a
    theorem about generic weights), upper bound (a theorem about all weights),
    conjecture of the rank or of a bound (not proved; the reference states on
    how many networks it was tried without a counterexample), or numerical
    (the size of the bulk of a network with activations: neither a theorem nor
    a bound). Each part has the strongest claim known for it.
    """
    from hessmap.theory import predict_ranks

    described = _network_of(network, activation, bias)
    known: dict[str, Any] = {
        "loss": loss,
        "input_rank": input_rank,
        "residual_rank": residual_rank,
        "centred_input_rank": centred_input_rank,
        "mean_residual_is_zero": mean_residual_is_zero,
        "num_samples": num_samples,
        "num_tokens": num_tokens,
    }
    prediction = predict_ranks(described, kind=cast("ClaimKind | None", kind), **known)
    found = _exact_checks(described, prediction, known) if check else []
    if as_json:
        content = prediction.to_dict()
        echo_json({**content, "check": found} if check else content)
        return
    from hessmap.views.tables import prediction_view

    console().print(prediction_view(prediction, title=f"{described}, {loss} loss"))
    for one in found:
        verdict = {True: "agrees", False: "DISAGREES", None: "no claim to compare with"}[one["agrees"]]
        console().print(f"{one['part'].replace('_', '-')} Hessian in exact arithmetic: {one['value']:,}, {verdict}")


def _exact_checks(network: Architecture, prediction: RankPrediction, known: dict[str, Any]) -> list[dict[str, Any]]:
    """The exact rank of each Hessian of the generic network, and whether the prediction says the same."""
    from hessmap.records import PARTS
    from hessmap.views.progress import TerminalProgress

    found = []
    with TerminalProgress() as shown:
        shown.start("loading exact arithmetic", total=len(PARTS))
        from hessmap.exact import generic_rank

        for place, part in enumerate(PARTS):
            shown.start(f"rank of the {part.replace('_', '-')} Hessian, exactly", total=len(PARTS))
            shown.advance(place)
            rank = generic_rank(network, part, **known)
            agrees = getattr(prediction, part).allows(rank.value)
            found.append({"part": part, "value": rank.value, "failure_bound": rank.failure_bound, "agrees": agrees})
    return found


def _network_of(network: str, activation: str, bias: bool) -> Architecture:
    """The network of the text, with what the options add to it."""
    from dataclasses import replace

    from hessmap.networks import LocallyConnected, Residual, SelfAttention, parse_network

    described = parse_network(network)
    if activation != "identity":
        if isinstance(described, SelfAttention):
            must = "linear self-attention has no activation"
            raise InvalidInput(sentence(must, f"--activation is {activation}", "Leave it out"))
        described = replace(described, activation=activation)
    if not bias:
        return described
    if isinstance(described, LocallyConnected | SelfAttention | Residual):
        must = "only fully connected and convolutional networks have a bias"
        raise InvalidInput(sentence(must, f"--bias is given for {network}", "Leave it out"))
    if described.has_bias and not all(described.biases):
        must, got = "--bias gives every layer a bias", f"{network} names the layers that have one"
        raise InvalidInput(sentence(must, got, "Leave --bias or the b out"))
    return replace(described, bias=True)
