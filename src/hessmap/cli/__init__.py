"""The command line: ``hessmap map``, ``predict``, ``certify`` and the others, and the commands of other packages."""

from hessmap.cli.app import app, main

__all__ = ["app", "main"]
