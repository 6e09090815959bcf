"""Are neighbouring layers balanced where training ends, and how fast does gradient flow balance them?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hessmap_research.runner.claims import Answer, Check, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Lines, Mark, Series, View

_DESCENT: dict[str, Any] = {"ridge": 0.05, "learning_rate": 0.02, "num_steps": 12_000}
_ADAM: dict[str, Any] = {"ridge": 0.05, "learning_rate": 2e-3, "num_steps": 3000}
_WIDTH, _NUM_SAMPLES = 20, 100
_FLOW_RIDGE, _FLOW_WIDTHS = 0.2, (4, 6, 5, 3)
_LAST_TIME, _NUM_MOMENTS = 0.5, 8


def cases() -> tuple[Case, ...]:
    descents = grid(item=["descent"], num_layers=(3, 4, 5), seed=range(5))
    adam = grid(item=["adam"], num_layers=(3, 4, 5), seed=[0])
    return (*descents, *adam, *grid(item=["flow"], slope=(1.0, 0.3, 0.0, -0.5), seed=range(2)))


def measure(case: Case) -> dict[str, Any]:
    return _flow_record(case) if case["item"] == "flow" else _trained_record(case)


def _trained_record(case: Case) -> dict[str, Any]:
    """A ReLU network on a target of rank 2, by descent whose steps shrink, or by Adam: the defects where it ends."""
    from hessmap.maps.functions import balance
    from hessmap_research.studies.function.low_rank_data import low_rank_data
    from hessmap_research.studies.function.regularised_network import regularised_network

    data = low_rank_data(2, num_samples=_NUM_SAMPLES, seed=case["seed"])
    inputs, outputs = data.inputs.shape[1], data.targets.shape[1]
    widths = (inputs, *(_WIDTH,) * (case["num_layers"] - 1), outputs)
    options = {"optimiser": "gd", **_DESCENT} if case["item"] == "descent" else _ADAM
    trained = regularised_network(widths, data, seed=case["seed"], **options)
    found = balance(trained.model)
    squares = [sum(float(part.detach().square().sum()) for part in layer.parameters()) for layer in trained.model]
    return {
        "layer_imbalance": found.relative,
        "unit_imbalance": found.largest_unit_defect / max(squares),
        "scaled_norm": trained.squared_norm / case["num_layers"],
        "gradient_norm": trained.gradient_norm,
        "risk": trained.risk,
    }


def _flow_record(case: Case) -> dict[str, Any]:
    """Gradient flow of mean ||f - y||^2 + ridge ||W||^2 in Runge-Kutta steps, and the defects over those at the start.

    Flows slide along the kinks of ReLUs, where an adaptive integrator would stall: the steps are fixed, and halved.
    """
    import numpy as np

    from hessmap.theory.functions import balance_defect_prediction

    generator = np.random.default_rng(case["seed"])
    inputs = generator.normal(size=(20, _FLOW_WIDTHS[0]))
    targets = generator.normal(size=(20, _FLOW_WIDTHS[-1]))
    model = _LeakyNetwork(inputs, targets, case["slope"])
    start = model.start(generator)
    steps = 2.0 ** -np.arange(8, 12)
    paths = [_path(model.gradient, start, float(step)) for step in steps]
    times = np.linspace(0.0, _LAST_TIME, 1 + _NUM_MOMENTS)
    law = np.array([balance_defect_prediction(1.0, _FLOW_RIDGE, time) for time in times])
    first = model.unit_defects(start)
    defects = np.stack([[model.unit_defects(point) for point in path] for path in paths])
    errors = np.abs(defects - law[:, None] * first).max(axis=(1, 2)) / np.abs(first).max()
    largest = int(np.abs(first).argmax())
    return {
        "times": times,
        "remaining": defects[-1, :, largest] / first[largest],
        "law": law,
        "steps": steps,
        "errors": errors,
        "law_error": float(errors[-1]),
        "least_improvement": float((errors[:-1] / errors[1:]).min()),
        "share_of_risk_left": model.risk(paths[-1][-1]) / model.risk(start),
    }


def _path(gradient: Any, start: Any, step: float) -> list[Any]:
    """The points at equal times, by the classical Runge-Kutta method of order 4."""
    point, found = start, [start]
    for _ in range(_NUM_MOMENTS):
        for _ in range(round(_LAST_TIME / step / _NUM_MOMENTS)):
            first = -gradient(point)
            second = -gradient(point + step / 2 * first)
            third = -gradient(point + step / 2 * second)
            fourth = -gradient(point + step * third)
            point = point + step / 6 * (first + 2 * second + 2 * third + fourth)
        found.append(point)
    return found


class _LeakyNetwork:
    """A small network of leaky ReLUs whose parameters are one vector."""

    def __init__(self, inputs: Any, targets: Any, slope: float) -> None:
        import torch

        self._inputs, self._targets, self._slope = torch.from_numpy(inputs), torch.from_numpy(targets), slope
        sizes = zip(_FLOW_WIDTHS[1:], _FLOW_WIDTHS[:-1], strict=True)
        self._shapes = [shape for size in sizes for shape in (size, size[:1])]

    def start(self, generator: Any) -> Any:
        import numpy as np

        return np.concatenate([0.6 * generator.normal(size=shape).ravel() for shape in self._shapes])

    def _parts(self, vector: Any) -> list[Any]:
        sizes = [shape[0] * (shape[1] if len(shape) > 1 else 1) for shape in self._shapes]
        return [part.reshape(shape) for part, shape in zip(vector.split(sizes), self._shapes, strict=True)]

    def _risk(self, vector: Any) -> Any:
        import torch

        parts, values = self._parts(vector), self._inputs
        for place in range(0, len(parts), 2):
            values = values @ parts[place].T + parts[place + 1]
            if place + 2 < len(parts):
                values = torch.where(values > 0, values, self._slope * values)
        return (values - self._targets).square().sum(dim=1).mean()

    def risk(self, vector: Any) -> float:
        import torch

        return float(self._risk(torch.from_numpy(vector)))

    def gradient(self, vector: Any) -> Any:
        import torch

        leaf = torch.from_numpy(vector.copy()).requires_grad_()
        (found,) = torch.autograd.grad(self._risk(leaf) + _FLOW_RIDGE * leaf.square().sum(), leaf)
        return found.numpy()

    def unit_defects(self, vector: Any) -> Any:
        """||outgoing||^2 - ||incoming||^2 - bias^2 of every hidden unit, layer by layer."""
        import torch

        parts = self._parts(torch.from_numpy(vector))
        pairs = zip(parts[:-2:2], parts[1:-2:2], parts[2::2], strict=True)
        return torch.cat([up.square().sum(0) - into.square().sum(1) - b.square() for into, b, up in pairs]).numpy()


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    descents = [row for row in rows if row["item"] == "descent"]
    if descents:
        layers, units = ([row[name] for row in descents] for name in ("layer_imbalance", "unit_imbalance"))
        detail = f"{sum(value <= 1e-3 for value in layers)} of {len(layers)} below it, the largest {max(layers):.1e}"
        yield Claim(
            "layers-balanced",
            "Descent with shrinking steps ends with balanced layers, to 1e-3",
            max(layers) <= 1e-3,
            detail,
        )
        yield Claim(
            "units-balanced", "and with balanced units, to 1e-3", max(units) <= 1e-3, f"the largest {max(units):.1e}"
        )
    flows = [row for row in rows if row["item"] == "flow"]
    smooth = [row["law_error"] for row in flows if row["slope"] == 1.0]
    if smooth:
        claim = "Defects of units decay as e^(-4 ridge t) under the flow of linear networks, to 1e-8"
        yield Claim("linear-decay", claim, max(smooth) < 1e-8, f"the farthest off by {max(smooth):.1e}")
    kinked = [row for row in flows if row["slope"] != 1.0]
    if kinked:
        last, least = max(row["law_error"] for row in kinked), min(row["least_improvement"] for row in kinked)
        detail = f"off by at most {last:.1e} at the smallest step; every halving divides that by {least:.2f} or more"
        claim = "and under that of ReLUs, to 1e-4 and in proportion to the step (flows slide along kinks)"
        yield Claim("relu-decay", claim, last < 1e-4 and least > 1.5, detail)


STUDY = Study(
    name="function/balance",
    question="Are neighbouring layers balanced at minima, and how fast does gradient flow balance them?",
    reference="Jacot 2023, Proposition 12 and Remark 6; the law in time is ours",
    cases=cases(),
    measure=measure,
    checks=(Check("law_error", 1e-4, "at_most"),),
    claims=claims,
    view=View(
        figures=(
            Lines(
                title="gradient flow, ReLU",
                x="times",
                series=(Series("largest defect of a unit", points="remaining", line="law"),),
                where={"item": "flow", "slope": 0.0},
                y_scale="log",
                x_label="time",
                y_label="over that at the start",
            ),
            Lines(
                title="off the law",
                x="steps",
                series=(Series("slope {slope} below 0", points="errors"),),
                split="slope",
                where={"item": "flow"},
                x_scale="log",
                y_scale="log",
                x_label="step of the integrator",
                y_label="largest distance from the law",
            ),
            *(
                Lines(
                    title=f"trained by {words}",
                    x="num_layers",
                    series=(Series("layers", points="layer_imbalance"), Series("units", points="unit_imbalance")),
                    where={"item": item},
                    y_scale="log",
                    x_label="layers",
                    y_label="largest defect / largest $\\|W_l\\|^2$",
                    marks=(Mark(1e-3, "called balanced below", axis="y"),),
                )
                for item, words in (("descent", "shrinking steps"), ("adam", "Adam"))
            ),
        ),
        table=(
            "item",
            Column("num_layers", "layers"),
            "slope",
            "seed",
            Column("layer_imbalance", "layers off", ".0e"),
            Column("unit_imbalance", "units off", ".0e"),
            Column("scaled_norm", "norm", ".3g"),
            Column("gradient_norm", "slope left", ".0e"),
            Column("law_error", "off law", ".0e"),
        ),
    ),
    seconds=lambda case: 3.0,
    answered=Answer(
        "Yes: descent ends with balanced layers, to 1e-3; under gradient flow the defects of units decay as e^(-4"
        " ridge t), to 1e-8 in linear and to 1e-4 in ReLU networks.",
        num_claims=4,
        cases="agrees",
    ),
)
