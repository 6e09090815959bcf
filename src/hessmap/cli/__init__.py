"""The command line: ``hessmap map | predict | data | study``."""

from hessmap.cli.app import app, main

__all__ = ["app", "main"]
