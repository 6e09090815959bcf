"""The command line with the studies joined, as a program of its own: ``python -m study_program study run ...``."""

import typer

from hessmap.views.cli.app import Roof
from hessmap.views.cli.study import study_app

app = typer.Typer(cls=Roof, pretty_exceptions_enable=False)
app.add_typer(study_app, name="study")


@app.callback()
def options(debug: bool = False) -> None:
    pass


if __name__ == "__main__":
    app()
