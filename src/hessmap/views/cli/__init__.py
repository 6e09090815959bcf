"""The command line: ``hessmap map | predict | data | study``."""

from hessmap.views.cli.app import app, main

__all__ = ["app", "main"]
