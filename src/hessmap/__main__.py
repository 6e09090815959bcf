"""The program ``hessmap``, also as ``python -m hessmap``: says what to install where the command line is not.

It loads the command line inside of what handles Ctrl-C, so that this is one line while modules load as well.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from hessmap.errors import EXIT_OF_CLOSED_PIPE, EXIT_OF_INTERRUPTION, MissingExtra, is_interruption, require_extra


def main() -> None:
    """Run the command line."""
    _open_closed_streams()
    try:
        try:
            _run()
        finally:
            _flush_output()
    except (Exception, KeyboardInterrupt) as error:
        if not is_interruption(error):
            raise
        print("hessmap: interrupted", file=sys.stderr)
        sys.exit(EXIT_OF_INTERRUPTION)


def _run() -> None:
    try:
        require_extra("typer", "cli")
    except MissingExtra as error:
        print(f"hessmap: {error}", file=sys.stderr)
        sys.exit(2)
    from hessmap.cli import main as run

    run()


def _open_closed_streams() -> None:
    """Discard the output of a program that was started without one (``>&-``): its files must not get that number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _flush_output() -> None:
    """Write what is left, here and not when Python shuts down: quietly where the reader of a pipe has gone."""
    try:
        sys.stdout.flush()
    except OSError as error:
        with suppress(OSError, ValueError):  # nothing is left to be written at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(EXIT_OF_CLOSED_PIPE)
        print(f"hessmap: the output must be writable; {error.strerror}.", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
