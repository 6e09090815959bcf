"""TF32 is off while a model on a device is evaluated, and the settings of the process are restored."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hessmap as hm
from hessmap.linalg import full_precision
from patience import PATIENCE

DEVICE = torch.device("cuda")  # the settings exist without the device
HAS_PRECISIONS = hasattr(torch._C, "_get_fp32_precision_getter")


def settings() -> tuple[Any, ...]:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    return matmul.allow_tf32, cudnn.allow_tf32, torch.get_float32_matmul_precision()


def precisions() -> list[str]:
    return [torch._C._get_fp32_precision_getter("cuda", name) for name in ("matmul", "conv", "rnn")]


def all_precisions() -> list[str]:
    """Those of the host as well, which torch may set together with them."""
    return [*precisions(), torch._C._get_fp32_precision_getter("mkldnn", "matmul")] if HAS_PRECISIONS else []


@pytest.fixture(params=["highest", "high", "medium"])
def rounded(request: pytest.FixtureRequest) -> Iterator[tuple[Any, ...]]:
    """Settings of a user, some of which allow TF32."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision(request.param)
    torch.backends.cudnn.allow_tf32 = True
    yield settings()
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


class Recording(nn.Module):
    """A linear model that records the settings in its forward and backward passes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.seen: dict[str, list[tuple[Any, ...]]] = {"forward": [], "backward": []}

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = self.linear(inputs)
        self.seen["forward"].append(settings())
        if outputs.requires_grad:
            outputs.register_hook(lambda _: self.seen["backward"].append(settings()))
        return outputs


def recorded(is_off: bool) -> dict[str, list[tuple[Any, ...]]]:
    problem = hm.Problem(Recording(), "squared", torch.randn(4, 3), torch.randn(4, 2))
    seen = problem.model.seen
    for passes in seen.values():
        passes.clear()
    with full_precision(DEVICE if is_off else torch.device("cpu")):
        problem.gradient()
    assert seen["forward"]
    assert seen["backward"]
    return seen


def test_tf32_is_off_in_forward_and_backward_passes(rounded: tuple[Any, ...]) -> None:
    seen = recorded(is_off=True)
    assert {found for passes in seen.values() for found in passes} == {(False, False, "highest")}
    assert settings() == rounded


def test_nothing_changes_for_the_cpu(rounded: tuple[Any, ...]) -> None:
    seen = recorded(is_off=False)
    assert {found for passes in seen.values() for found in passes} == {rounded}


def test_settings_are_restored_after_an_exception(rounded: tuple[Any, ...]) -> None:
    with pytest.raises(KeyError), full_precision(DEVICE), full_precision(DEVICE):
        raise KeyError
    assert settings() == rounded


def test_a_thread_that_ends_first_does_not_switch_it_on_for_another(rounded: tuple[Any, ...]) -> None:
    entered, may_end = threading.Event(), threading.Event()

    def first() -> None:
        with full_precision(DEVICE):
            entered.set()
            may_end.wait(PATIENCE)

    thread = threading.Thread(target=first)
    thread.start()
    entered.wait(PATIENCE)
    with full_precision(DEVICE):
        may_end.set()
        thread.join()
        assert settings() == (False, False, "highest")
    assert settings() == rounded


def test_a_flag_of_matrix_products_alone_is_restored() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.backends.cuda.matmul.allow_tf32 = True
        given, operations = settings(), all_precisions()
        with full_precision(DEVICE):
            assert settings()[0] is False
        assert (settings(), all_precisions()) == (given, operations)
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.skipif(not HAS_PRECISIONS, reason="this torch has no fp32_precision")
def test_settings_of_the_newer_interface_are_restored() -> None:
    before = precisions()
    try:
        torch._C._set_fp32_precision_setter("cuda", "matmul", "tf32")
        with pytest.raises(RuntimeError, match="mix of the legacy and new"):
            settings()
        given = precisions()
        with full_precision(DEVICE):
            assert precisions() == ["ieee"] * 3
        assert precisions() == given
    finally:
        for name, value in zip(("matmul", "conv", "rnn"), before, strict=True):
            torch._C._set_fp32_precision_setter("cuda", name, value)
