"""Random settings for hypothesis: an architecture, a loss, and data ranks that can occur together."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from hypothesis import strategies as st

from exact_oracle import Hessians, generic_hessians

LOSSES = ("squared", "log_cosh", "cross_entropy")


@dataclass(frozen=True)
class Setting:
    widths: tuple[int, ...]
    bias: bool
    loss: str
    input_rank: int
    centred_input_rank: int
    residual_rank: int
    mean_residual_is_zero: bool
    seed: int

    @property
    def effective_output_dim(self) -> int:
        return self.widths[-1] - (self.loss == "cross_entropy")

    def hessians(self) -> Hessians:
        return generic_hessians(**asdict(self))


def architectures(max_width: int = 5, max_layers: int = 4) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.integers(1, max_width), min_size=2, max_size=max_layers + 1).map(tuple)


@st.composite
def settings_with_ranks(draw: st.DrawFn, bias: bool, generic_residual: bool = False) -> Setting:
    """A setting whose residual has any possible rank, or the largest and no vanishing mean if ``generic_residual``."""
    widths = draw(architectures())
    loss = draw(st.sampled_from(LOSSES))
    input_rank = draw(st.integers(0, widths[0]))
    centred = max(input_rank - draw(st.integers(0, 1)), 0)
    mean_is_zero = not generic_residual and draw(st.booleans())
    visible = centred if mean_is_zero else centred + 1 if bias else input_rank
    largest = min(visible, widths[-1] - (loss == "cross_entropy"))
    residual_rank = largest if generic_residual else draw(st.integers(0, largest))
    seed = draw(st.integers(0, 2**32))
    return Setting(widths, bias, loss, input_rank, centred, residual_rank, mean_is_zero, seed)
