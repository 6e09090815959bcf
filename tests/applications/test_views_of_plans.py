"""The table of a compression plan shows every number that the record has, beside each other."""

from __future__ import annotations

from rich.console import Console

import hessmap as hm
from hessmap.views.tables import compression_view


def test_the_table_has_predicted_beside_measured_costs() -> None:
    inputs, labels = hm.datasets.digits(num_samples=30)
    model = hm.FullyConnected((64, 3, 10), activation="tanh").build(seed=0)
    plan = hm.compression_plan(hm.Problem(model, "cross_entropy", inputs, labels), (3, 6), 4, sparsity=0.5)
    console = Console(width=200, record=True, file=None, quiet=False)
    with console.capture() as shown:
        console.print(compression_view(plan))
    lines = shown.get().splitlines()
    for layer in plan.layers:
        row = next(line for line in lines if line.strip().startswith(layer.name))
        expected = [f"{layer.num_weights:,}", str(layer.bits)]
        for cost in (*layer.costs, layer.pruning):
            assert cost is not None
            expected += [f"{cost.predicted_increase:.2e}", f"{cost.measured_increase:.2e}"]
        assert row.split()[1:] == expected
    assert f"measured {plan.measured_increase:.3g}" in shown.get()
