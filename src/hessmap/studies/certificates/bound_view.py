"""How certificates are shown, in every study of them: the bound beside the error on test data."""

from __future__ import annotations

from hessmap.studies import Cloud, Column

BOUND_AND_TEST_ERROR = Cloud(
    title="bound and error on test data",
    x="bound",
    y="stochastic_test_error",
    colour="basis",
    x_label="bound",
    y_label="error of the stochastic network on test data",
)
BOUND = Column("bound", "bound", ".4f")
PARTS_OF_BOUND = (
    Column("kl", "KL", ".0f"),
    Column("sampled_error_bound", "error, samples", ".4f"),
    Column("stochastic_test_error", "error, test", ".4f"),
)


def what_it_is_made_of(colour: str) -> Cloud:
    """The two numbers that a bound follows from, coloured by a field of the case."""
    return Cloud(
        title="what a bound is made of",
        x="kl",
        y="sampled_error_bound",
        colour=colour,
        x_label="divergence of the posterior from the prior",
        y_label="error of the stochastic network on the samples",
    )
