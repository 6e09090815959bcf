"""The progress of a posterior's fit in the terminal: how far, and the bound so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from hessmap.certificates import FitMoment


@contextmanager
def fit_progress(console: Console, iterations: int) -> Iterator[Callable[[FitMoment], None]]:
    """A function to be told of every moment; where there is no terminal, nothing is drawn."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    words = TextColumn("{task.fields[words]}")
    with Progress(*columns, words, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("fitting a posterior", total=iterations, words="")

        def moved(moment: FitMoment) -> None:
            words = f"bound about {moment.bound:.3f} (error {moment.error:.3f}, KL {moment.kl:.0f})"
            bar.update(task, completed=moment.iteration, words=words)

        yield moved
