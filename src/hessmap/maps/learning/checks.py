"""What can be wrong with an estimate of a learning coefficient, one check each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, log

from hessmap.maps.learning.convergence import split_r_hat, trend
from hessmap.measurement import Floats
from hessmap.records import ChainSettings, CheckOutcome, EstimateVerdict, LearningCheck

R_HAT = 1.02
CHANGE = 0.05  # of the value, when a setting changes
_TREND = 0.1  # of the value, from the first to the last block
_STEP = 0.2  # times the largest curvature where the chains are
_TRAVEL = 0.4  # step times draws times localisation


@dataclass(frozen=True)
class Measured:
    """A value with its standard error."""

    value: float
    error: float


def chain_checks(
    kept: Floats, found: Measured, settings: ChainSettings, sharpness: float, num_parameters: int
) -> list[LearningCheck]:
    """The checks that one run answers."""
    return [
        _minimum_check(found),
        _parameters_check(found, num_parameters),
        _agreement_check(kept),
        _trend_check(kept, found),
        _step_size(settings, sharpness),
        _length_check(settings),
        *([] if settings.batch_size is None else [_batch_check(settings, sharpness)]),
    ]


def setting_check(
    name: str, what: str, found: Measured, other: Measured | None, remedy: str, is_settled: bool = True
) -> LearningCheck:
    """Whether the value stays when one setting changes; chains that have not settled cannot tell why it does not."""
    if other is None:
        return LearningCheck(name, "not run", None, CHANGE, f"{what} was not tried")
    scale = max(abs(found.value), 0.05)
    change = (other.value - found.value) / scale
    noise = 2 * (found.error**2 + other.error**2) ** 0.5 / scale
    text = f"{what} changes the value by {change:+.1%} (noise {noise:.1%})"
    if abs(change) <= CHANGE and noise <= 2 * CHANGE:
        return LearningCheck(name, "passed", change, CHANGE, text)
    if abs(change) <= max(noise, CHANGE):
        return LearningCheck(name, "inconclusive", change, CHANGE, f"{text}: more chains or draws would tell")
    if not is_settled:
        text += ": the chains have not settled, so it need not be the setting; more draws first"
        return LearningCheck(name, "inconclusive", change, CHANGE, text)
    return LearningCheck(name, "failed", change, CHANGE, f"{text}: {remedy}")


def verdict(checks: Sequence[LearningCheck]) -> EstimateVerdict:
    """What all of them say together."""
    outcomes = {check.outcome for check in checks}
    if "failed" in outcomes:
        return "unreliable"
    return "reliable" if outcomes == {"passed"} else "inconclusive"


def _outcome(passed: bool) -> CheckOutcome:
    return "passed" if passed else "failed"


def _minimum_check(found: Measured) -> LearningCheck:
    passed = found.value > -3 * found.error or abs(found.value) < 1e-9
    text = "the loss of the draws lies above that of the weights"
    failed = "the draws have a lower loss than the weights, which are no minimum: train further, or raise localisation"
    return LearningCheck("minimum", _outcome(passed), found.value, 0.0, text if passed else failed)


def _parameters_check(found: Measured, num_parameters: int) -> LearningCheck:
    half = num_parameters / 2
    passed = found.value - 3 * found.error <= half
    text = f"the value is at most half the number of parameters, {half:g}"
    failed = f"the value is above half the number of parameters, {half:g}: the step is too large"
    return LearningCheck("parameters", _outcome(passed), found.value, half, text if passed else failed)


def _agreement_check(kept: Floats) -> LearningCheck:
    value = split_r_hat(kept)
    text = f"split R-hat is {value:.3f}" + ("" if value < R_HAT else ": more draws, or a longer burn-in")
    return LearningCheck("agreement", _outcome(value < R_HAT), value, R_HAT, text)


def _trend_check(kept: Floats, found: Measured) -> LearningCheck:
    moved, error = trend(kept)
    scale = max(abs(found.value), 0.05)
    text = f"from the first to the last of 8 blocks the draws move by {moved / scale:+.1%}"
    is_real = abs(moved) > 3 * error if isfinite(error) else abs(moved) > _TREND * scale
    if is_real and abs(moved) > _TREND * scale:
        return LearningCheck("trend", "failed", moved / scale, _TREND, f"{text}: a longer burn-in")
    is_clear = abs(moved) + 2 * error <= 3 * _TREND * scale if isfinite(error) else True
    return LearningCheck("trend", "passed" if is_clear else "inconclusive", moved / scale, _TREND, text)


def _step_size(settings: ChainSettings, sharpness: float) -> LearningCheck:
    n_beta = settings.num_observations * settings.inverse_temperature
    measured = settings.step_size * (n_beta * sharpness + settings.localisation)
    factor = 1 / (1 - measured / 4) if measured < 4 else inf
    text = f"the step makes the value at most {factor - 1:.0%} too large, by the largest curvature that the chains met"
    if measured > _STEP:
        text += f": step_size={0.1 / measured * settings.step_size:.2g}"
    return LearningCheck("step", _outcome(measured <= _STEP), measured, _STEP, text)


def _length_check(settings: ChainSettings) -> LearningCheck:
    """A chain of T steps does not leave w0 further than a pull of about 1 / (step T) would let it."""
    if settings.localisation == 0:
        return LearningCheck(
            "length", "inconclusive", None, _TRAVEL, "without localisation no length is enough for sure"
        )
    measured = settings.step_size * settings.num_draws * settings.localisation
    text = f"step x draws x localisation is {measured:.2g}"
    if measured < _TRAVEL:
        enough = _TRAVEL / (settings.step_size * settings.localisation)
        text += f", below {_TRAVEL}: short chains act like a stronger pull; num_draws={enough:.2g} or more"
        text += ", or a larger localisation, which makes the value smaller"
    return LearningCheck("length", _outcome(measured >= _TRAVEL), measured, _TRAVEL, text)


def _batch_check(settings: ChainSettings, sharpness: float) -> LearningCheck:
    assert settings.batch_size is not None
    n_beta = settings.num_observations * settings.inverse_temperature
    wanted = 5 * settings.step_size * n_beta**2 * sharpness
    text = f"batches of {settings.batch_size} for at least {wanted:.3g}, from which on their noise adds 5 % or less"
    return LearningCheck("batch", _outcome(settings.batch_size >= wanted), settings.batch_size, wanted, text)


def default_inverse_temperature(num_observations: float) -> float:
    """beta = 1 / log n, at which the estimator is defined (Lau et al. 2023; Watanabe 2013)."""
    return 1 / log(num_observations)
