"""What is asked, the settings that each library needs for the accuracy asked, and how right its answer is.

The peers have no rule that stops at an accuracy: each is given the cheapest setting that reaches it, found beforehand
with our product (the same mathematics), and only the run with that setting is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from harness import best_seconds
from libraries import DENSE, Adapter, Answer, Curvlinops, Eigenthings, Ours, OursCompiled, PyHessian, clocked, share
from torch import Tensor

import hessmap as hm
from cases import GPT2, Case, TokenEncoder
from hessmap.linalg.lanczos import BlockLanczos, ScaledProduct

ACCURACIES = {torch.float64: 1e-6, torch.float32: 1e-3}  # of an eigenvalue, relative to itself
RESIDUALS = {torch.float64: 1e-5, torch.float32: 1e-3}  # of the reference


_FEW_PAIRS = 8
LARGE, _FEWEST_PROBED = 1_000_000, 80  # parameters of a network whose trace is found in part; products of that part


@dataclass(frozen=True)
class Sizes:
    count: int = 20
    steps: int = 64
    probes: int = 16
    standard_error: float = 0.01
    block: int = 32


@dataclass(frozen=True)
class Reference:
    """Eigenvalues of the matrix, or by plain Lanczos until the residuals are far below what is asked of an eigenvalue,
    whose error goes with their square; the trace with its standard error."""

    eigenvalues: np.ndarray
    trace: float
    trace_error: float
    trace_products: int  # that hutch++ takes to the standard error asked for, from the spread of its probes
    checked: float  # ||H V c - V L c|| / lambda_1 with a peer's product, for random signs c
    settings: dict[str, Any] = field(default_factory=dict)  # of peers' solvers, with what they find on our products


def reference(case: Case, sizes: Sizes) -> Reference:
    ours = Ours(case, dense=True)
    if ours.is_dense:
        theirs = Curvlinops(case).block(torch.eye(case.num_parameters, dtype=torch.float64))
        values = np.linalg.eigvalsh(theirs.numpy())[::-1]
        own = hm.spectrum(ours.operator).eigenvalues
        off = float(np.abs(own - values).max() / values[0])
        found = hm.trace_estimate(ours.operator, relative_error=sizes.standard_error, method="hutch++")
        return Reference(own[: sizes.count], float(theirs.trace()), 0.0, found.num_products, off)
    run = lanczos_run(case, sizes.count)
    values, residuals = (found.numpy() for found in run.top(sizes.count))
    assert (residuals <= RESIDUALS[case.dtype] * values).all(), f"residuals {residuals / values}"
    mixed = run.mixed
    # Not by curvlinops where its own products are wrong (layer-norm).
    checker = Eigenthings(case) if isinstance(case.model, TokenEncoder | GPT2) else Curvlinops(case)
    image = checker.product(mixed[:, 0].to(case.dtype)).double()
    off = float((image - mixed[:, 1]).norm()) / float(values[0])
    return Reference(values, *reference_trace(ours, sizes), off)


def random_signs(count: int) -> Tensor:
    return torch.randint(0, 2, (count,), generator=torch.Generator().manual_seed(1)).double() * 2 - 1


def reference_trace(ours: Ours, sizes: Sizes) -> tuple[float, float, int]:
    """Exact where the structure tells it, with the products that hutch++ would take to the standard error asked for."""
    most = 160 if ours.operator.dtype == torch.float64 else 100
    options: Any = {"relative_error": sizes.standard_error, "method": "hutch++", "max_products": most, "seed": 99}
    probed = hm.trace_estimate(ours.operator, **options)
    known = hm.trace_estimate(ours.operator, relative_error=sizes.standard_error, max_products=1)
    value, error = (known.value, 0.0) if known.method == "exact" else (probed.value, probed.standard_error)
    sketch = probed.num_products - probed.num_probes
    return value, error, sketch + int(np.ceil(probed.num_probes * (probed.standard_error / probed.asked) ** 2))


def seconds_each(library: Any, size: int) -> float:
    return best_seconds(lambda: library.product(torch.ones(size)), 1)


def one_product(library_of: type, case: Case, sizes: Sizes, _: Reference) -> Answer:
    return _products(library_of, case, 1)


def block_product(library_of: type, case: Case, sizes: Sizes, _: Reference) -> Answer:
    return _products(library_of, case, sizes.block)


def _products(library_of: type, case: Case, width: int) -> Answer:
    """The best of some seconds' worth, with what is set up once at hand; ``notes`` tell the seconds of setting up."""
    made = clocked(lambda: Ours(case, dense=width > 1) if library_of is Ours else library_of(case))
    library = made.value
    vectors = torch.randn(case.num_parameters, width, generator=torch.Generator().manual_seed(0), dtype=case.dtype)
    first = clocked(lambda: library.product(vectors[:, 0].contiguous()))
    run_width = max(min(2, width), int(width * share(width, first.seconds)))
    few = vectors[:, :run_width].contiguous()
    run = (lambda: library.product(few[:, 0].contiguous())[:, None]) if width == 1 else (lambda: library.block(few))
    num_rounds = max(1 if first.seconds * width > 5 else 3, min(50, int(2 / (first.seconds * run_width))))
    rounds = [clocked(run, width, run_width / width) for _ in range(num_rounds)]
    best = min(rounds, key=lambda answer: answer.seconds)
    best.notes = f"set up in {made.seconds + max(0.0, first.seconds - best.seconds / width):.2g} s"
    best.notes += told_tracing(library)
    best.peak_bytes = max(made.peak_bytes + first.peak_bytes, best.peak_bytes)
    return best


def told_tracing(library: Any) -> str:
    """What a problem of ours says of its traced products."""
    notes = library.problem.notes if isinstance(library, Ours) else ()
    return "".join(f"; {note}" for note in notes if "traced" in note)


def product_error(answer: Answer, expected: Tensor) -> float:
    return float((answer.value[:, : expected.shape[1]] - expected).abs().max() / expected.abs().max())


def top(library_of: type, case: Case, sizes: Sizes, known: Reference) -> Answer:
    """The value is the largest eigenvalues, from the model and the data on."""
    if issubclass(library_of, Ours):
        return _our_top(library_of, case, sizes, known)
    return {Curvlinops: _scipy_top, Eigenthings: _lanczos_top, PyHessian: _power_top}[library_of](case, sizes, known)


def _our_top(library_of: type, case: Case, sizes: Sizes, known: Reference) -> Answer:
    """As for the peers: the cheapest setting that reaches the accuracy, and only its run is timed.

    A compiled product is compiled before, as the compiler finds it on the disk afterwards: in both number formats.
    """
    accuracy = ACCURACIES[case.dtype]
    ready_made = library_of(case)
    if library_of is OursCompiled:
        ready_made.product(torch.ones(case.num_parameters))
        ready_made.operator.in_single_precision = _kept_narrow(ready_made)

    def run(tolerance: float, precision: Any) -> Any:
        operator = ready_made.operator if library_of is OursCompiled else library_of(case).operator
        found = hm.top_eigenpairs(
            operator, sizes.count, tolerance=tolerance, relative_to="eigenvalue", precision=precision
        )
        single = f", {found.num_single_products} in float32" if found.num_single_products else ""
        return found.eigenvalues, found.num_products, f"tolerance={tolerance:g}{single}"

    settings = ((1e-3, "auto"), (1e-4, "single"), (1e-4, "auto"), (1e-5, "auto"), (1e-6, "auto"))
    for setting in settings if case.dtype == torch.float64 else ((1e-3, "auto"), (1e-4, "auto")):
        answer = clocked(lambda setting=setting: run(*setting))
        answer.value, answer.products, answer.notes = answer.value
        if eigenvalue_error(answer.value, known) <= accuracy:
            break
    answer.notes += told_tracing(ready_made)
    return answer


def _kept_narrow(library: Ours) -> Any:
    """The operator in float32 with its products compiled, made once."""
    narrow = library.operator.in_single_precision()
    if narrow is not None:
        narrow.matmat(torch.ones(narrow.size, 1, dtype=torch.float32))
    return lambda: narrow


def _scipy_values(product: Callable[[Tensor], Tensor], case: Case, count: int, tolerance: float) -> tuple[Any, int]:
    """Eigenvalues by eigsh, and its products."""
    from scipy.sparse.linalg import eigsh

    adapter = Adapter(product, case.num_parameters)
    start = np.random.default_rng(0).standard_normal(case.num_parameters)
    values = eigsh(adapter.scipy(), k=count, which="LA", v0=start, return_eigenvectors=False, tol=tolerance)
    return np.sort(values)[::-1], adapter.num_products


def scipy_setting(case: Case, sizes: Sizes, known: Reference) -> dict[str, Any]:
    """The coarsest tolerance that reaches the accuracy."""
    ours = Ours(case)
    for tolerance in (1e-2, 1e-4, 1e-6, 1e-8):
        values, products = _scipy_values(ours.product, case, sizes.count, tolerance)
        if eigenvalue_error(values, known) <= ACCURACIES[case.dtype]:
            break
    return {"tolerance": tolerance, "products": products, "eigenvalues": values.tolist()}


@dataclass(frozen=True)
class LanczosRun:
    """So many steps with full orthogonality from hessian-eigenthings' start, by our products."""

    projection: Tensor
    coupling: float  # of the next vector to the last one
    mixed: Tensor  # a random combination of the top Ritz vectors, and of them times their values

    def top(self, count: int, steps: int | None = None) -> tuple[Tensor, Tensor]:
        """Ritz values after so many steps and, after all of them, the norms of their residuals."""
        steps = steps or len(self.projection)
        values, vectors = torch.linalg.eigh(self.projection[:steps, :steps])
        return values.flip(0)[:count], self.coupling * vectors[-1].abs().flip(0)[:count]


@lru_cache(maxsize=1)
def lanczos_run(case: Case, count: int) -> LanczosRun:
    ours = Ours(case)
    start = torch.randn(case.num_parameters, dtype=case.dtype, generator=torch.Generator().manual_seed(0))
    most = min(case.num_parameters, max(8 * count, 80))
    product = ScaledProduct(ours.operator.matmat, case.num_parameters, is_new=True)
    product.dtype = case.dtype
    process = BlockLanczos(product, most, precision=case.dtype)
    process.start(start[None], 1)
    while process.dimension < most and process.width and not _is_found(process, count, RESIDUALS[case.dtype]):
        process.expand()
    values, vectors, _ = process.ritz()
    signs = random_signs(count)
    top = vectors[:, -count:].flip(1) @ torch.stack([signs, signs * product.scale * values[-count:].flip(0)], 1)
    coupling = product.scale * float(process.coupling.norm())
    return LanczosRun(product.scale * process.projection.clone(), coupling, process.combine(top))


def _is_found(process: BlockLanczos, count: int, allowed: float) -> bool:
    """Whether the top residuals are small, at every tenth step."""
    if process.dimension < 2 * count or process.dimension % 10:
        return False
    values, _, residuals = process.ritz()
    return bool((residuals[-count:] <= allowed * values[-count:]).all())


def lanczos_setting(case: Case, sizes: Sizes, known: Reference) -> dict[str, Any]:
    """The fewest steps of Lanczos with full orthogonality, from the peer's start, that reach the accuracy."""
    run = lanczos_run(case, sizes.count)
    for steps in range(2 * sizes.count, len(run.projection) + 1):
        values = run.top(sizes.count, steps)[0].numpy()
        if eigenvalue_error(values, known) <= ACCURACIES[case.dtype]:
            break
    return {"steps": steps, "eigenvalues": values.tolist()}


def reaches(setting: dict[str, Any], case: Case, known: Reference) -> bool:
    """Whether the steps that a setting was given are enough; else their seconds are a lower bound."""
    return eigenvalue_error(np.array(setting["eigenvalues"]), known) <= ACCURACIES[case.dtype]


def _scipy_top(case: Case, sizes: Sizes, known: Reference) -> Answer:
    if case.num_parameters > LARGE:
        return _scipy_top_at_least(case, sizes, known)
    setting = known.settings.get("eigsh") or scipy_setting(case, sizes, known)
    products, tolerance = setting["products"], setting["tolerance"]
    notes = f"eigsh with tol={tolerance:g}"
    library = Curvlinops(case)
    part = share(products, seconds_each(library, case.num_parameters))
    if part == 1.0:
        answer = clocked(lambda: _scipy_values(Curvlinops(case).product, case, sizes.count, tolerance), 0, 1.0, notes)
        answer.value, answer.products = answer.value
        return answer
    answer = _some_products(
        library, case, products, part, notes + "; eigenvalues by the same iteration on our products"
    )
    answer.value = np.array(setting["eigenvalues"])
    return answer


def _scipy_top_at_least(case: Case, sizes: Sizes, known: Reference) -> Answer:
    """As many products as Lanczos with full re-orthogonalisation takes: eigsh, which restarts, takes no fewer."""
    setting = known.settings.get("lanczos") or lanczos_setting(case, sizes, known)
    library, steps = Curvlinops(case), setting["steps"]
    part = min(0.99, share(steps, seconds_each(library, case.num_parameters)))
    answer = _some_products(library, case, steps, part, "the products of Lanczos alone, which eigsh needs at least")
    answer.value, answer.is_measured = np.array(setting["eigenvalues"]), reaches(setting, case, known)
    return answer


def _lanczos_top(case: Case, sizes: Sizes, known: Reference) -> Answer:
    import hessian_eigenthings as peer

    setting = known.settings.get("lanczos") or lanczos_setting(case, sizes, known)
    steps = setting["steps"]
    library = Eigenthings(case)
    part, notes = share(steps, seconds_each(library, case.num_parameters)), f"{steps} steps, re-orthogonalised"
    options = {"k": sizes.count, "max_iter": steps, "reorthogonalize": True, "which": "LA", "seed": 0}
    if part == 1.0:
        operator = library.operator
        answer = clocked(lambda: peer.lanczos(operator, **options), steps, 1.0, notes)
        answer.value = answer.value.eigenvalues.numpy()
        return answer
    notes += "; eigenvalues by the same iteration on our products"
    answer = _some_products(library, case, steps, part, notes, orthogonalised=steps * (steps + 1) // 2)
    answer.value, answer.is_measured = np.array(setting["eigenvalues"]), reaches(setting, case, known)
    if not answer.is_measured:
        answer.notes += "; more steps than these would be needed, so that its seconds are a lower bound"
    return answer


def _power_top(case: Case, sizes: Sizes, known: Reference) -> Answer:
    """Power iteration with deflation: at its own settings, because none that ends within minutes is right."""
    library = PyHessian(case)
    each = seconds_each(library, case.num_parameters)
    count = max(1, min(sizes.count, int(2 * share(100 * sizes.count, each) * sizes.count)))
    torch.manual_seed(0)
    answer = clocked(
        lambda: library.operator.eigenvalues(maxIter=100, tol=1e-3, top_n=count)[0], 0, count / sizes.count
    )
    answer.value, answer.notes = np.sort(answer.value)[::-1], "power iteration, maxIter=100, tol=1e-3"
    return answer


def _some_products(library: Any, case: Case, products: int, part: float, notes: str, orthogonalised: int = 0) -> Answer:
    """So many of the products, and the seconds of all, with those of so many times that the peer's own functions take
    one vector out of another, scaled up from a few; what the iteration costs beside these is left out."""
    run = max(3, round(part * products))
    vector = torch.ones(case.num_parameters, dtype=case.dtype) / case.num_parameters**0.5
    answer = clocked(lambda: [library.product(vector) for _ in range(run)], products, run / products, notes)
    if orthogonalised:
        remove, other = library.remover(vector), vector.clone()
        remove(other)
        pairs = clocked(lambda: [remove(other) for _ in range(_FEW_PAIRS)], 0, _FEW_PAIRS / orthogonalised)
        answer.seconds += pairs.seconds
        answer.processor_seconds += pairs.processor_seconds
        answer.notes += f"; of its seconds {pairs.seconds:.3g} are {orthogonalised} orthogonalisations, scaled up"
    return answer


def eigenvalue_error(values: np.ndarray, known: Reference) -> float:
    """The largest error of an eigenvalue, relative to itself."""
    expected = known.eigenvalues[: len(values)]
    return float(np.abs((values - expected) / expected).max())


def density(library_of: type, case: Case, sizes: Sizes, known: Reference) -> Answer:
    """The value is the mean of the density and its largest node (or the largest place where it does not vanish)."""
    products = sizes.steps * sizes.probes
    if issubclass(library_of, Ours):
        library = library_of(case)
        each = 0.0 if case.num_parameters <= DENSE else seconds_each(library, case.num_parameters)
        probes = max(2, min(sizes.probes, int(sizes.probes * share(products, each))))
        warm = library if library_of is OursCompiled else None
        answer = clocked(
            lambda: _our_density(warm or library_of(case), sizes.steps, probes), products, probes / sizes.probes
        )
        answer.notes = told_tracing(library)
        return answer
    library = library_of(case)
    part = share(products, seconds_each(library, case.num_parameters))
    if part < 1 / sizes.probes:
        pairs = sizes.probes * sizes.steps * (sizes.steps + 1) // 2 if hasattr(library, "remover") else 0
        answer = _some_products(library, case, products, part, "not one whole probe was run", orthogonalised=pairs)
        answer.is_measured = False
        return answer
    probes = max(1, min(sizes.probes, int(sizes.probes * share(products, seconds_each(library, case.num_parameters)))))
    steps = sizes.steps
    part = probes / sizes.probes
    if library_of is Curvlinops:
        from curvlinops.papyan2020traces.spectrum import fast_lanczos

        torch.manual_seed(0)
        run = lambda: [fast_lanczos(library.operator, steps) for _ in range(probes)]  # noqa: E731
        answer = clocked(run, products, part, "fast_lanczos")
        rules = [(values.numpy(), vectors[0].square().numpy()) for values, vectors in answer.value]
    elif library_of is Eigenthings:
        import hessian_eigenthings as peer

        run = lambda: peer.spectral_density(library.operator, num_runs=probes, lanczos_steps=steps, seed=0)  # noqa: E731
        answer = clocked(run, products, part)
        rules = list(zip(answer.value.raw_eigenvalues.numpy(), answer.value.raw_weights.numpy(), strict=True))
    else:
        torch.manual_seed(0)
        answer = clocked(lambda: library.operator.density(iter=steps, n_v=probes), products, part)
        rules = [(np.array(nodes), np.array(weights)) for nodes, weights in zip(*answer.value, strict=True)]
    answer.value = _summary(rules)
    return answer


def _our_density(library: Ours, steps: int, probes: int) -> dict[str, float]:
    # Vectors of millions of entries are not worth storing: curvlinops does not, and sums stay right.
    budget = 2**30 if library.operator.size > LARGE else 2**33
    found = hm.density_estimate(library.operator, num_steps=steps, num_probes=probes, memory_budget=budget)
    return _summary(list(zip(found.nodes, found.weights, strict=True)))


def _summary(rules: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    means = np.array([float((nodes * weights).sum() / weights.sum()) for nodes, weights in rules])
    error = float(means.std(ddof=1) / len(means) ** 0.5) if len(means) > 1 else float("nan")
    tops = [float(nodes[weights > 1e-12].max()) for nodes, weights in rules]
    return {"mean": float(means.mean()), "mean_error": error, "largest": max(tops)}


def density_error(value: dict[str, float], known: Reference, size: int) -> float:
    """The largest eigenvalue, whose place every rule finds: relative."""
    return abs(value["largest"] / known.eigenvalues[0] - 1)


def trace(library_of: type, case: Case, sizes: Sizes, known: Reference) -> Answer:
    """The value is (trace, standard error)."""
    if issubclass(library_of, Ours):
        return _our_trace(library_of, case, sizes, known)
    if library_of is PyHessian:
        return _hutchinson(case, sizes)
    import hessian_eigenthings as peer

    products = 3 * (known.trace_products // 3 + 1)
    library = library_of(case)
    part, notes = share(products, seconds_each(library, case.num_parameters)), "hutch++"
    if part < 1:
        answer = _some_products(library, case, products, part, notes)
        answer.is_measured = False
        return answer
    if library_of is Eigenthings:
        answer = clocked(lambda: peer.trace(library.operator, num_matvecs=products, seed=0), products, 1.0, notes)
        answer.value = answer.value.estimate, answer.value.stderr
        return answer
    from curvlinops import hutchpp_trace

    torch.manual_seed(0)
    answer = clocked(lambda: float(hutchpp_trace(library.operator, products)), products, 1.0, notes)
    answer.value = answer.value, sizes.standard_error * abs(answer.value)
    return answer


def _our_trace(library_of: type, case: Case, sizes: Sizes, known: Reference) -> Answer:
    """Whole, or the fewest products of its method where the whole takes long; the others' seconds are added."""
    warm = library_of(case)
    if library_of is OursCompiled:
        warm.product(torch.ones(case.num_parameters))
    most = _FEWEST_PROBED if case.num_parameters > LARGE else 1000

    def run() -> Any:
        operator = warm.operator if library_of is OursCompiled else library_of(case).operator
        return hm.trace_estimate(operator, relative_error=sizes.standard_error, max_products=most)

    answer = clocked(run)
    found = answer.value
    answer.value, answer.products = (found.value, found.standard_error), found.num_products
    answer.notes = found.method + told_tracing(warm)
    if found.num_products and not found.reached:
        answer.products, answer.part = known.trace_products, found.num_products / known.trace_products
        answer.seconds, answer.processor_seconds = (
            spent / answer.part for spent in (answer.seconds, answer.processor_seconds)
        )
    return answer


def _hutchinson(case: Case, sizes: Sizes) -> Answer:
    """Its own rule stops by chance; it is given as many probes as the spread of some of them asks for."""
    products = hutchinson_products(case, sizes)
    library = PyHessian(case)
    part = share(products, seconds_each(library, case.num_parameters))
    run = max(3, round(part * products))
    torch.manual_seed(0)
    answer = clocked(lambda: library.operator.trace(maxIter=run, tol=0.0), products, run / products, "Hutchinson")
    values = np.array(answer.value)
    answer.value = float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5)
    return answer


@lru_cache(maxsize=2)
def hutchinson_products(case: Case, sizes: Sizes) -> int:
    """By the spread of 48 probes; the standard error is that of ``trace_estimate``, of the trace or of the norm."""
    ours = hm.trace_estimate(Ours(case).operator, relative_error=1e-9, method="hutchinson", max_products=48)
    return int(np.ceil(48 * (ours.standard_error / (1e9 * sizes.standard_error * ours.asked)) ** 2))


def trace_allowance(value: tuple[float, float], known: Reference) -> float:
    """Three times the standard error asked for; more where a part was run, by its own standard error."""
    return max(0.03, 4 * value[1] / abs(known.trace))


def trace_error(value: tuple[float, float], known: Reference) -> float:
    return abs(value[0] / known.trace - 1)


QUESTIONS = {
    "one product": one_product,
    "block product": block_product,
    "top eigenvalues": top,
    "density": density,
    "trace": trace,
}
