"""The rows of a map: which parameters belong together, and what they do."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hessmap.linalg.vectors import Layout
from hessmap.maps.curvature_map.layers import Block, block_numbers, blocks_of_model
from hessmap.maps.curvature_map.plan import MapPlan, ProductBudget


def blocks_of(model: nn.Module) -> tuple[Block, ...]:
    return blocks_of_model(model, Layout(tuple((name, tuple(it.shape)) for name, it in model.named_parameters())))


def kinds(model: nn.Module) -> dict[str, str]:
    return {block.name: block.kind for block in blocks_of(model)}


class Decoder(nn.Module):
    """Names as GPT-2 has them."""

    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(7, 4)
        self.h = nn.ModuleDict(
            {
                "ln_1": nn.LayerNorm(4),
                "attn": nn.ModuleDict({"c_attn": nn.Linear(4, 12), "c_proj": nn.Linear(4, 4)}),
                "mlp": nn.ModuleDict({"c_fc": nn.Linear(4, 16)}),
            }
        )
        self.lm_head = nn.Linear(4, 7)


def test_a_transformer_is_read_by_what_its_layers_do() -> None:
    assert kinds(Decoder()) == {
        "wte": "embedding",
        "h.ln_1": "norm",
        "h.attn.c_attn (query)": "query",
        "h.attn.c_attn (key)": "key",
        "h.attn.c_attn (value)": "value",
        "h.attn.c_proj": "attention output",
        "h.mlp.c_fc": "mlp",
        "lm_head": "output",
    }


def test_the_attention_of_torch_is_three_rows_and_its_projection() -> None:
    model = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True)
    found = kinds(model)
    assert [found[f"self_attn ({kind})"] for kind in ("query", "key", "value")] == ["query", "key", "value"]
    assert found["self_attn.out_proj"] == "attention output"
    assert found["linear1"] == "mlp"
    assert found["norm1"] == "norm"
    weight, bias = model.self_attn.in_proj_weight, model.self_attn.in_proj_bias
    flat = nn.utils.parameters_to_vector(model.parameters())
    (key,) = (block for block in blocks_of(model) if block.name == "self_attn (key)")
    assert torch.equal(flat[key.places], torch.cat([weight[6:12].flatten(), bias[6:12]]))


def test_columns_are_split_where_the_outputs_are_the_second_axis() -> None:
    class Conv1D(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.arange(12.0).view(2, 6)), nn.Parameter(torch.zeros(6))

    model = nn.ModuleDict({"c_attn": Conv1D()})
    query = blocks_of(model)[0]
    assert query.shape == "2×2 + 2"
    assert query.places.tolist() == [0, 1, 6, 7, 12, 13]


@pytest.mark.parametrize("name", ["query_key_value", "c_attention"])
def test_other_fused_weights_are_one_row(name: str) -> None:
    assert len(blocks_of(nn.ModuleDict({name: nn.Linear(4, 12)}))) == 1


@pytest.mark.parametrize("model", [Decoder(), nn.TransformerEncoderLayer(6, 2, 8), nn.Sequential(nn.Conv2d(1, 2, 3))])
def test_every_parameter_belongs_to_one_block(model: nn.Module) -> None:
    blocks, size = blocks_of(model), sum(parameter.numel() for parameter in model.parameters())
    assert torch.cat([block.places for block in blocks]).sort().values.tolist() == list(range(size))
    numbers = block_numbers(blocks, size)
    assert all(bool((numbers[block.places] == number).all()) for number, block in enumerate(blocks))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_budget_with_time_enough_gives_every_stage_its_cap() -> None:
    budget = ProductBudget(None, {"one": 30, "two": 10}, seconds_per_product=1.0)
    assert budget.planned_products == 40
    assert (budget.allowed_products("one"), budget.allowed_products("two")) == (30, 10)


def test_a_short_time_is_shared_in_proportion_and_what_is_left_goes_on() -> None:
    clock = Clock()
    budget = ProductBudget(20.0, {"one": 30, "two": 10}, seconds_per_product=1.0, clock=clock)
    assert budget.planned_products == 20
    assert budget.allowed_products("one") == 15
    clock.now = 5.0
    budget.spend(5, 5.0)
    assert budget.allowed_products("two") == 10
    clock.now = 21.0
    assert not budget.has_time()


def test_a_slow_stage_makes_the_next_one_smaller() -> None:
    clock = Clock()
    budget = ProductBudget(20.0, {"one": 30, "two": 10}, seconds_per_product=1.0, clock=clock)
    budget.allowed_products("one")
    clock.now = 16.0
    budget.spend(8, 16.0)
    assert budget.allowed_products("two") == 2
    assert budget.num_products == 8


@pytest.mark.parametrize(
    ("seconds", "first", "second"),
    # 20 + 80 / 130 of the 40 beyond both floors; 20 / 30 of 12 seconds; what no stage can do without
    [(200.0, 100, 60), (70.0, 44, 26), (30.0, 20, 10), (12.0, 8, 4), (3.0, 3, 2), (-5.0, 3, 2)],
)
def test_stages_get_their_floors_before_more_and_the_least_in_any_time(seconds: float, first: int, second: int) -> None:
    """Between floors and caps the rest is shared in proportion to what is missing; below the floors these shrink."""
    options = {"floors": {"one": 20, "two": 10}, "least": {"one": 3, "two": 2}}
    clock = Clock()
    budget = ProductBudget(seconds, {"one": 100, "two": 60}, 1.0, clock, **options)
    assert budget.allowed_products("one") == first
    clock.now = float(first)
    assert budget.allowed_products("two") == second


def test_a_plan_says_bytes_or_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hessmap.maps.curvature_map.plan.matmul_flops_per_second", lambda: 1e9)
    plan = MapPlan(1000, 100)
    assert plan.seconds == pytest.approx(4 * plan.num_flops / 1e9)
    assert plan.excess(None) == ""
    assert plan.excess(1.0) == ""  # nobody waits for so few parameters
    monkeypatch.setattr("hessmap.maps.curvature_map.plan._QUICK", 500)
    assert plan.excess(1.0) == f"dense Hessians would take about {plan.seconds:.3g} s, the limit is 1 s"
    assert MapPlan(1000, 100, seconds_per_product=1.0).seconds == pytest.approx(plan.seconds + 2 * 1000)
    assert "need" in MapPlan(10**8, 100).excess(None)
