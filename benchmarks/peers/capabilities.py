"""What hessmap and its peers can do, one row a question, every cell the outcome of asking the library.

A cell is "yes" if the library's answer is within 1e-6 of one found by plain autograd, "wrong" with the error if it gave
another, and "no" with what it raised, or with the name that it does not have. The peers are asked as their
documentation says.

    make bench-peers    # or: python benchmarks/peers/capabilities.py
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent))

import torch
import torch.nn.functional as F
from harness import environment, write
from torch import Tensor, nn

import hessmap as hm

ALLOWED = 1e-6
LIBRARIES = ("hessmap", "curvlinops", "hessian-eigenthings", "PyHessian")
MODULES = {"hessmap": "hessmap", "curvlinops": "curvlinops", "hessian-eigenthings": "hessian_eigenthings"}
CLASSES, TOKENS = 5, 4
Batches = list[Any]


class Language(nn.Module):
    """Logits (samples, classes, tokens), as torch's cross-entropy takes them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix, self.head = nn.Embedding(CLASSES, 4), nn.Linear(4, 4), nn.Linear(4, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(torch.tanh(self.mix(self.embed(ids))).cumsum(1)).mT


class Keywords(nn.Module):
    """A model that is called with keywords and computes its own loss, as those of Hugging Face."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Language()

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.model(input_ids).mT
        if labels is None:
            return {"logits": logits}
        return {"loss": F.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


def classifier(first: int = 10) -> tuple[nn.Module, Batches]:
    """20 samples in two batches."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, CLASSES)).double()
    inputs, labels = torch.randn(20, 6).double(), torch.arange(20) % CLASSES
    return model, [(inputs[:first], labels[:first]), (inputs[first:], labels[first:])]


def language() -> tuple[nn.Module, Batches]:
    """Two batches with different numbers of tokens that count."""
    torch.manual_seed(0)
    ids, labels = torch.randint(0, CLASSES, (8, TOKENS)), torch.randint(0, CLASSES, (8, TOKENS))
    labels[:4, 1:] = -100
    return Language().double(), [(ids[:4], labels[:4]), (ids[4:], labels[4:])]


def vector_for(model: nn.Module) -> Tensor:
    count = sum(value.numel() for value in model.parameters())
    return torch.randn(count, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def flat(parts: Any) -> Tensor:
    return torch.cat([part.reshape(-1) for part in parts])


def whole(batches: Batches) -> tuple[Tensor, Tensor]:
    return torch.cat([inputs for inputs, _ in batches]), torch.cat([labels for _, labels in batches])


def expected(model: nn.Module, batches: Batches, vector: Tensor, part: str = "loss") -> Tensor:
    """By plain autograd of torch's mean over all samples or tokens at once."""
    inputs, labels = whole(batches)
    parameters, outputs = list(model.parameters()), model(inputs)
    point = outputs if part == "loss" else outputs.detach().requires_grad_()
    risk = F.cross_entropy(point, labels)
    if part == "loss":
        slopes = flat(torch.autograd.grad(risk, parameters, create_graph=True))
        return flat(torch.autograd.grad(slopes, parameters, vector))
    if part == "functional":
        slope = torch.autograd.grad(risk, point)[0]
        roots = flat(torch.autograd.grad(outputs, parameters, slope, create_graph=True))
        return flat(torch.autograd.grad(roots, parameters, vector, materialize_grads=True))
    if part == "empirical":
        pairs = [(inputs[n : n + 1], labels[n : n + 1]) for n in range(len(inputs))]
        rows = [flat(torch.autograd.grad(loss_of(model, pair), parameters)) for pair in pairs]
        return torch.stack([row * (row @ vector) for row in rows]).mean(0)
    return expected(model, batches, vector) - expected(model, batches, vector, "functional")


class Absent(Exception):
    """The library has no such thing among its public names."""


def offered(library: str, name: str) -> Any:
    if library == "PyHessian":
        from pyhessian import hessian

        raise Absent(f"{name} is not among {', '.join(word for word in dir(hessian) if word[0] != '_')}")
    module = __import__(MODULES[library])
    if not hasattr(module, name):
        raise Absent(f"{MODULES[library]} has no {name}")
    return getattr(module, name)


def loss_of(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def hessian_product(library: str, setting: Callable[[], tuple[nn.Module, Batches]]) -> float:
    model, batches = setting()
    vector = vector_for(model)
    wanted = expected(model, batches, vector)
    if library == "hessmap":
        found = hm.loss_hessian(hm.Problem(model, nn.CrossEntropyLoss(), batches)) @ vector
    elif library == "curvlinops":
        operator = offered(library, "HessianLinearOperator")
        found = operator(model, nn.CrossEntropyLoss(), list(model.parameters()), batches) @ vector
    elif library == "hessian-eigenthings":
        found = offered(library, "HessianOperator")(model, batches, loss_of).matvec(vector)
    else:
        from pyhessian import hessian

        operator = hessian(model, nn.CrossEntropyLoss(), dataloader=batches, cuda=False)
        sizes = [value.numel() for value in operator.params]
        parts = [part.reshape(own.shape) for part, own in zip(torch.split(vector, sizes), operator.params, strict=True)]
        found = flat(operator.dataloader_hv_product(parts)[1])
    return relative(found.detach(), wanted)


def part_product(library: str, part: str) -> float:
    """Outer-product Hessian, functional Hessian, empirical Fisher."""
    model, batches = classifier()
    vector = vector_for(model)
    wanted = expected(model, batches, vector, part)
    ours = {"outer": "outer_product_hessian", "functional": "functional_hessian", "empirical": "empirical_fisher"}
    if library == "hessmap":
        found = getattr(hm, ours[part])(hm.Problem(model, "cross_entropy", batches)) @ vector
    elif library == "curvlinops":
        names = {"outer": "GGNLinearOperator", "functional": "FunctionalHessian", "empirical": "EFLinearOperator"}
        operator = offered(library, names[part])
        found = operator(model, nn.CrossEntropyLoss(), list(model.parameters()), batches) @ vector
    elif library == "hessian-eigenthings" and part == "outer":
        on_outputs = lambda outputs, batch: F.cross_entropy(outputs, batch[1])  # noqa: E731
        operator = offered(library, "GGNOperator")
        found = operator(model, batches, lambda model, batch: model(batch[0]), on_outputs).matvec(vector)
    elif library == "hessian-eigenthings" and part == "empirical":
        per_sample = lambda model, batch: F.cross_entropy(model(batch[0][None]), batch[1][None])  # noqa: E731
        found = offered(library, "EmpiricalFisherOperator")(model, batches, per_sample).matvec(vector)
    else:
        found = offered(library, ours[part])
    return relative(found.detach(), wanted)


def own_loss(library: str) -> float:
    """A loader of dictionaries for a model that is called with keywords and computes its own loss."""
    torch.manual_seed(0)
    model, (_, pairs) = Keywords().double(), language()
    batches = [{"input_ids": ids, "labels": labels} for ids, labels in pairs]
    vector = vector_for(model)
    wanted = expected(model.model, pairs, vector)
    if library == "hessmap":
        found = hm.loss_hessian(hm.Problem(model, None, batches)) @ vector
    elif library == "hessian-eigenthings":
        operator = offered(library, "HessianOperator")
        found = operator(model, batches, lambda model, batch: model(**batch)["loss"]).matvec(vector)
    elif library == "curvlinops":
        takes = lambda batch: len(batch["labels"])  # noqa: E731
        loss = lambda outputs, labels: outputs["loss"]  # noqa: E731
        operator = offered(library, "HessianLinearOperator")
        data = [(batch, batch["labels"]) for batch in batches]
        found = operator(model, loss, list(model.parameters()), data, batch_size_fn=takes) @ vector
    else:
        offered(library, "keyword inputs")
    return relative(found.detach(), wanted)


def dropout_left_on(library: str) -> float:
    """It must refuse: there is no Hessian. An answer counts as infinitely wrong."""
    model, batches = nn.Sequential(nn.Linear(6, 8), nn.Dropout(), nn.Linear(8, CLASSES)).double(), classifier()[1]
    try:
        if library == "hessmap":
            hm.loss_hessian(hm.Problem(model, "cross_entropy", batches))
        elif library == "curvlinops":
            offered(library, "HessianLinearOperator")(model, nn.CrossEntropyLoss(), list(model.parameters()), batches)
        elif library == "hessian-eigenthings":
            offered(library, "HessianOperator")(model, batches, loss_of).matvec(vector_for(model))
        else:
            from pyhessian import hessian

            hessian(model, nn.CrossEntropyLoss(), dataloader=batches, cuda=False).eigenvalues(maxIter=3)
    except Absent:
        raise
    except Exception:
        return 0.0
    return float("inf")


def named(name: str, *others: tuple[str, str]) -> Callable[[str], float]:
    """Whether there is such a thing at all, by its public name in each library."""
    names = dict(others) | {"hessmap": name}

    def ask(library: str) -> float:
        offered(library, names.get(library, name))
        return 0.0

    return ask


def pyhessian_trace(library: str) -> float:
    if library == "PyHessian":
        from pyhessian import hessian

        return 0.0 if hasattr(hessian, "trace") else float("inf")
    return named("trace_estimate", ("curvlinops", "hutchinson_trace"), ("hessian-eigenthings", "trace"))(library)


def relative(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).abs().max() / wanted.abs().max())


ROWS: dict[str, Callable[[str], float]] = {
    "H v of a classifier": lambda library: hessian_product(library, classifier),
    "the same, of 12 and of 8 samples": lambda library: hessian_product(library, lambda: classifier(12)),
    "H v of tokens, mean over those that count": lambda library: hessian_product(library, language),
    "dictionaries, and a model's own loss": own_loss,
    "outer-product Hessian (GGN)": lambda library: part_product(library, "outer"),
    "functional Hessian": lambda library: part_product(library, "functional"),
    "empirical Fisher": lambda library: part_product(library, "empirical"),
    "dropout left on is refused": dropout_left_on,
    "a function for the trace": pyhessian_trace,
    "a function for Kronecker factors (K-FAC)": named("kronecker_approximation", ("curvlinops", "KFACLinearOperator")),
    "a function for the exact rank of a given network": named("certified_rank"),
    "a function that predicts ranks of an architecture": named("predict_ranks"),
}


def cell(ask: Callable[[str], float], library: str) -> dict[str, Any]:
    try:
        error = ask(library)
    except Absent as absent:
        return {"answer": "no", "why": str(absent)}
    except Exception as error:
        return {"answer": "no", "why": f"{type(error).__name__}: {str(error).splitlines()[0][:140]}"}
    return {"answer": "yes" if error <= ALLOWED else "wrong", "error": error}


def main() -> int:
    warnings.simplefilter("ignore")
    where, rows = environment(), []
    for question, ask in ROWS.items():
        cells = {library: cell(ask, library) for library in LIBRARIES}
        rows.append({"question": question, "libraries": cells})
        print(question, {library: found["answer"] for library, found in cells.items()}, flush=True)
    write("capabilities", where, rows)
    return 0 if all(row["libraries"]["hessmap"]["answer"] == "yes" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
