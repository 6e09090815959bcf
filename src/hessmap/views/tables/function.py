"""Function ranks and learning coefficients as tables."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from hessmap.records import (
    BottleneckView,
    FunctionRank,
    LearningCoefficient,
    LearningCoefficientEstimate,
    RankRange,
    RepresentationCost,
)
from hessmap.views.tables.contents import FittingTable, Table, new_table, number

_SIGNS = {"value": "=", "lower_bound": ">=", "upper_bound": "<="}


def function_view(rank: FunctionRank, view: BottleneckView, cost: RepresentationCost) -> RenderableType:
    """Show the function of a network: a summary, its Jacobians, its layers, and the cost of its weights.

    Args:
        rank: Rank of the function.
        view: Its layers.
        cost: The cost of its weights.

    Returns:
        RenderableType: Text and tables for a rich console.
    """
    parts: list[RenderableType] = [Text(function_verdict(rank, view, cost), style="bold")]
    for head, part in (
        ("Jacobians", _pairs(jacobian_rows(rank))),
        ("Layers", FittingTable(layers(view))),
        ("Squared norm of the weights", FittingTable(costs(cost))),
    ):
        parts += [Padding(Text(head, style="bold"), (1, 0, 0, 0)), part]
    parts += [Text(line, style="dim") for line in ("", *small_print(rank, view, cost))]
    return Group(*parts)


def _pairs(rows: list[tuple[str, str]]) -> RichTable:
    table = new_table()
    table.show_header = False
    table.add_column("")
    table.add_column("", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def function_verdict(rank: FunctionRank, view: BottleneckView, cost: RepresentationCost) -> str:
    """State the interval of the bottleneck rank, its source, the narrow layers, and what the weights could save.

    Args:
        rank: Rank of the function.
        view: Its layers.
        cost: The cost of its weights.

    Returns:
        str: One paragraph.
    """
    interval = rank.bottleneck
    assert interval is not None
    if interval.lower == interval.upper:
        ranks = f"The function has bottleneck rank {interval.lower}"
    elif interval.lower < interval.upper:
        ranks = f"The function has a bottleneck rank between {interval.lower} and {interval.upper}"
    else:
        ranks = (
            f"The Jacobians have rank {interval.lower} and layer {interval.upper_layer} only {interval.upper}: no rank"
        )
    ranks += f" up to singular values below {rank.relative_tolerance:g} of the largest. {_firmness(rank)}."
    parts = [_narrow_layers(view)]
    bound = cost.bound("jacobians")
    if bound is not None and bound.squared_norm:
        ratio = cost.squared_norm / bound.squared_norm
        parts.append(f"the squared norm of its weights is {ratio:.2f} times the least that its Jacobians allow")
    text = "; ".join(parts)
    return f"{ranks} {text[0].upper()}{text[1:]}."


def _firmness(rank: FunctionRank) -> str:
    """At how many samples the Jacobians have which rank, and over which tolerances the largest one holds."""
    counts = sorted(rank.distribution.items(), key=lambda item: -item[1])
    (most, count), *others = counts
    text = f"Its Jacobians have rank {most} at {count} of {rank.num_samples} samples"
    text += "".join(f", {value} at {number}" for value, number in others[:3]) + (", .." if len(others) > 3 else "")
    robust = rank.robust_rank
    if robust is None:
        return f"{text}; no largest rank holds over a range of tolerances near {rank.relative_tolerance:g}"
    return f"{text}; {_range(robust)}"


def _range(robust: RankRange) -> str:
    return f"the largest is {robust.value} at every tolerance from {robust.lowest:.2g} to {robust.highest:.2g}"


def _narrow_layers(view: BottleneckView) -> str:
    if not view.bottlenecks:
        few = f"there are only {view.num_distinct} different samples"
        return f"how narrow its hidden layers are cannot be determined, because {few}"
    hidden = [layer for layer in view.layers if layer.name in view.bottlenecks]
    is_one = len(hidden) == 1
    layers = f"its narrowest hidden {'layer' if is_one else 'layers'}, {', '.join(layer.name for layer in hidden)}, "
    layers += f"{'holds' if is_one else 'hold'} {hidden[0].centred_rank} dimensions"
    return layers if view.is_chain else f"{layers}, but not all of the function passes through one layer"


def jacobian_rows(rank: FunctionRank) -> list[tuple[str, str]]:
    """What is known of the rank from the Jacobians: names and values."""
    interval = rank.bottleneck
    assert interval is not None
    ranks = rank.distribution
    spread = ", ".join(f"{value} at {count}" for value, count in sorted(ranks.items(), reverse=True)[:4])
    robust = rank.robust_rank
    holds = "no rank" if robust is None else f"{robust.value} from {robust.lowest:.2g} to {robust.highest:.2g}"
    rows = [
        ("largest rank over the samples", f"{rank.value} of {min(rank.input_dim, rank.output_dim)}"),
        ("how many samples have which", spread + (", .." if len(ranks) > 4 else "")),
        ("largest rank that holds over tolerances", holds),
        ("smallest gap around a cut", f"{rank.smallest_gap:.3g}"),
        ("bottleneck rank, at least", f"{interval.lower} ({interval.lower_kind})"),
        ("bottleneck rank, at most", f"{interval.upper} ({interval.upper_kind}: {interval.upper_layer})"),
    ]
    if rank.num_kinks:
        rows.append(("samples on a kink", f"{rank.num_kinks}, evaluated next to it"))
    if rank.certificate is not None:
        doubt = f"{rank.certificate.failure_bound:.0e}"
        rows.append(("certified rank, without a tolerance", f"{rank.certificate.value} (fails with {doubt})"))
    return rows


def layers(view: BottleneckView) -> Table:
    """The representation behind every layer."""
    labels = ("layer", "width", "rank", "centred", "effective", "nonlinear", "alike", "")
    lines = []
    for layer in view.layers:
        marks = [word for word, names in (("bottleneck", view.bottlenecks), ("identity", view.identities),
                                          ("limited by samples", view.limited_by_samples))
                 if layer.name in names]  # fmt: skip
        impact = "" if layer.nonlinearity is None else f"{layer.nonlinearity:.2f}"
        numbers = (layer.width, layer.rank, layer.centred_rank, f"{layer.effective_rank:.1f}", impact)
        lines.append((layer.name, *map(str, numbers), f"{layer.similarity:.2f}", ", ".join(marks)))
    return Table(labels, tuple(lines), (False, *[True] * 6, False))


def costs(cost: RepresentationCost) -> Table:
    """The squared norm of the weights beside what the function needs at least."""
    lines = tuple(
        (bound.name, f"{_SIGNS[bound.kind]} {bound.squared_norm:.4g}", f"{bound.scaled:.3g}", bound.source,
         bound.holds_for)
        for bound in cost.bounds
    )  # fmt: skip
    return Table(("", "norm", "/ layers", "source", "of"), lines, (False, True, True, False, False))


def small_print(rank: FunctionRank, view: BottleneckView, cost: RepresentationCost) -> list[str]:
    """What the columns mean, and under which conditions the numbers hold."""
    lines = [
        "rank and centred: dimensions of a layer's outputs over the samples, around zero and around their mean; "
        "alike: similarity of outputs and inputs (1: equal up to rotation and scale). "
        f"{view.num_samples} samples, Jacobians by {rank.method}.",
    ]
    if view.limited_by_samples:
        names = ", ".join(view.limited_by_samples)
        lines.append(f"{view.num_distinct} different samples limit the rank of layers {names}.")
    if cost.constant is not None:
        error = "" if not cost.function_error else f", for a function within {cost.function_error:.1g} of this one"
        bound = f"cost <= {cost.inner_rank} L + {cost.constant:.4g}"
        lines.append(f"At every depth L above {cost.num_layers}: {bound} (construction{error}).")
        depths = cost.expected_depths
        words = "none" if depths is None else f"{depths[0]} to {depths[1]}"
        lines.append(f"Depths at which the weights of least norm are expected to show rank {cost.inner_rank}: {words}.")
    return [*lines, *cost.notes]


_STYLES = {"passed": "", "failed": "bold", "inconclusive": "italic", "not run": "dim"}


def coefficient_view(found: LearningCoefficient, title: str = "") -> RenderableType:
    """Show a learning coefficient between half the rank of the Hessian and half the number of parameters.

    Args:
        found: The coefficient.
        title: Heading. Default: none.

    Returns:
        RenderableType: Text and tables for a rich console.
    """
    where = "at these weights" if found.is_local else "at generic weights"
    counts = (
        ("learning coefficient", found.value),
        (f"half the rank of H_o {where}", found.hessian_rank / 2),
        ("half the parameters", found.num_parameters / 2),
    )
    shown = tuple((name, str(value) if value is found.value else "", f"{float(value):,.10g}") for name, value in counts)
    table = FittingTable(Table(("count", "value", "as a number"), shown, (False, True, True)))
    head = [Text(title, style="italic")] if title else []
    multiplicity = "not known" if found.multiplicity is None else f"{found.multiplicity:,}"
    lines = [f"multiplicity {multiplicity}, rank of the truth {found.rank:,}", f"{found.kind}: {found.reference}"]
    if found.kind == "conjecture":
        lines.append(f"proved: at least {found.lower_bound}, at most {found.value}")
    return Group(*head, table, *_lines(lines), Text("Assumed", style="bold"), *_lines(found.assumptions))


def estimate_view(found: LearningCoefficientEstimate, title: str = "") -> RenderableType:
    """Show an estimated learning coefficient with its reliability, the settings, and every check.

    Args:
        found: The estimate.
        title: Heading. Default: none.

    Returns:
        RenderableType: Text and tables for a rich console.
    """
    low, high = found.interval
    head = f"Learning coefficient {found.with_error} (95 %: {low:.3g} to {high:.3g}), {found.verdict}"
    table = new_table(title)
    table.add_column("check", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    table.add_column("what was seen")
    for check in found.checks:
        table.add_row(check.name, Text(check.outcome, style=_STYLES[check.outcome]), Text(check.sentence))
    return Group(Text(head, style="bold"), table, *_lines(_settings(found)))


def _settings(found: LearningCoefficientEstimate) -> list[str]:
    settings = found.settings
    batch = "all samples" if settings.batch_size is None else f"{settings.batch_size:,} samples"
    return [
        f"half the parameters: {found.num_parameters / 2:,g}; largest curvature of chains: {number(found.sharpness)}",
        f"{settings.num_chains} chains of {settings.num_draws:,} draws after {settings.num_burn_in:,} steps, ended by "
        f"{found.stopped_by}; each step of {number(settings.step_size)} sees {batch}",
        f"n {settings.num_observations:,g}, beta {number(settings.inverse_temperature)}, localisation "
        f"{settings.localisation:g}, seed {settings.seed}",
    ]


def _lines(texts: tuple[str, ...] | list[str]) -> list[RenderableType]:
    return [Padding(Text(text), (0, 0, 0, 2)) for text in texts]
