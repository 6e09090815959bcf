"""``hessmap study``: list, describe, run, show and export the questions of the papers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from hessmap.cli.options import (
    FIGURES,
    STORE,
    AsJson,
    Html,
    StorePath,
    console,
    echo_json,
    require_writable,
    write_text,
)

if TYPE_CHECKING:
    from hessmap_research.runner.engines import EngineName
    from hessmap_research.runner.store import Summary
    from hessmap_research.runner.study import Study

EXAMPLES = """
[bold]Examples[/bold]

  hessmap study list\n
  hessmap study describe fcn/simulate\n
  hessmap study run fcn/simulate\n
  hessmap study show fcn/simulate --html simulate.html\n
  hessmap study run my_package.my_study:STUDY  [dim]# one of your own[/dim]
"""

study_app = typer.Typer(
    name="study",
    help="Run and show studies: each answers one question of a paper, case by case.",
    epilog=EXAMPLES,
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _names_of_studies(incomplete: str) -> list[str]:
    """What the shell offers for the beginning of a name."""
    from hessmap_research.runner.registry import listing

    return [listed.name for listed in listing() if listed.name.startswith(incomplete)]


Name = Annotated[
    str,
    typer.Argument(
        help="The name of a study, or package.module:attribute for one of your own.", autocompletion=_names_of_studies
    ),
]
Data = Annotated[str | None, typer.Option(help="The data set to use. Default: the study's own.")]
Results = Annotated[Path | None, typer.Option("--results", help="Read the exported JSON of this folder instead.")]


@study_app.command("list")
def list_studies(store: StorePath = STORE, as_json: AsJson = False) -> None:
    """List the studies and how much of each is in the store."""
    from hessmap_research.runner.registry import listing
    from hessmap_research.runner.store import StudyStore

    summaries: tuple[Summary, ...] = ()
    if store.exists():
        with StudyStore(store) as opened:
            summaries = opened.summaries()
    if as_json:
        stored = [summary.__dict__ for summary in summaries]
        echo_json({"studies": [listed.__dict__ for listed in listing()], "stored": stored})
        return
    from hessmap_research.views.text import listing_view

    _print(listing_view(listing(), summaries))


@study_app.command()
def describe(name: Name, data: Data = None, store: StorePath = STORE, as_json: AsJson = False) -> None:
    """Say what a study asks, the paper's item, its cases, the data it wants and the predicted cost."""
    from hessmap_research.runner.description import study_description

    description = study_description(_study_of(name), data, store)
    if as_json:
        typer.echo(description.to_json(indent=2))
        return
    from hessmap_research.views.text import description_view

    _print(description_view(description))


@study_app.command()
def run(
    name: Name,
    data: Data = None,
    store: StorePath = STORE,
    engine: Annotated[str, typer.Option(help="processes, inline (this process) or dask.")] = "processes",
    workers: Annotated[int | None, typer.Option(help="Worker processes. Default: one for each core.")] = None,
    scheduler: Annotated[str | None, typer.Option(help="With --engine dask: address of its scheduler.")] = None,
    case: Annotated[str | None, typer.Option(help="Run one case alone, spelled as JSON.")] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Re-run failed cases.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Re-run all cases and replace their records.")] = False,
    results: Annotated[
        Path | None, typer.Option(help="Leave out the cases that the results of this folder have.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the cases of a study that are not stored yet.

    Ctrl-C finishes the cases under way and leaves; a second one leaves at
    once. The same command continues where it stopped. With --results results
    only what nobody has run yet is run; `hessmap study export --keep` adds it.
    """
    from hessmap.views.progress import TerminalProgress

    require_writable(store, replaces=True)
    with TerminalProgress() as shown:
        shown.start(f"{name}: its cases, its data and what is stored")
        from hessmap_research.runner.encoding import case_of_key
        from hessmap_research.runner.run import run as run_study

        _study_of(name)
        summary = run_study(
            name,
            store,
            data=data,
            engine=cast("EngineName", engine),
            workers=workers,
            scheduler=scheduler,
            case=case_of_key(case) if case is not None else None,
            retry_failed=retry_failed,
            again=again,
            results=results,
            progress=shown,
        )
    if as_json:
        typer.echo(summary.to_json(indent=2))
    else:
        from hessmap_research.views.text import summary_view

        _print(summary_view(summary))
    if summary.is_interrupted:
        raise typer.Exit(130)
    if summary.num_failed:
        raise typer.Exit(1)


@study_app.command()
def show(
    name: Name,
    data: Data = None,
    store: StorePath = STORE,
    results: Results = None,
    figure: Annotated[Path | None, typer.Option(help="Write the figures to this .png, .svg or .pdf file.")] = None,
    html: Html = None,
    rows: Annotated[int, typer.Option(min=0, help="Lines of the table to print; 0 for all.")] = 40,
    claims: Annotated[int, typer.Option(min=0, help="Claims to print; 0 for all.")] = 12,
    as_json: AsJson = False,
) -> None:
    """Show the outcomes and the table of a study, from the store or from exported results.

    --figure and --html write the figures, or a page with figures and table, to a file of your choice.
    """
    from hessmap_research.runner.collection import results_text, study_collection

    require_writable(figure, FIGURES)
    require_writable(html)
    study = _study_of(name)
    found = study_collection(study, store, results, data)
    written: list[Path] = []
    if figure is not None:
        from hessmap_research.views.figure import write_study_figure

        written.append(write_study_figure(found, figure))
    if html is not None:
        from hessmap_research.views.text import study_page

        written.append(write_text(html, study_page(found, name)))
    if as_json:
        content = json.loads(results_text(study, found.stored))
        echo_json({**content, "outcome": found.outcome.to_dict(), "source": found.source})
        return
    from hessmap_research.views.text import collection_view

    _print(collection_view(found, rows, written, claims))


@study_app.command()
def export(
    name: Name,
    data: Data = None,
    store: StorePath = STORE,
    results: Annotated[Path, typer.Option("--results", help="The folder to write to.")] = Path("results"),
    keep: Annotated[bool, typer.Option("--keep", help="Keep what the file has and the store does not.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the records of a study to results/NAME.json, in a stable order, to be committed."""
    from hessmap_research.runner.collection import collection_from_store, joined_records, write_results, written_path

    study = _study_of(name)
    require_writable(written_path(study, results), replaces=True)
    found = collection_from_store(study, store, data)
    stored = joined_records(study, found.stored, results) if keep else found.stored
    path = write_results(study, stored, results)
    if as_json:
        echo_json({"path": str(path), "num_records": len(stored.rows), "notes": found.notes})
        return
    _print(f"{len(stored.rows)} records written to {path}.", *found.notes)


def _study_of(name: str) -> Study:
    """The study, with modules of the current folder within reach, as for ``python -m``."""
    from hessmap_research.runner.registry import find

    if ":" in name:
        from hessmap.cli.subject import imported_module

        imported_module(name.partition(":")[0])  # a module that cannot be imported is said in one sentence
    return find(name)


def _print(*parts: Any) -> None:
    console().print(*parts, sep="\n")


def add_commands(app: typer.Typer) -> None:
    """Add ``hessmap study`` to the program."""
    app.add_typer(study_app)
