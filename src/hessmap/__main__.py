"""The program ``hessmap``, also as ``python -m hessmap``: says what to install where the command line is not."""

from __future__ import annotations

import sys

from hessmap.errors import MissingExtra, require_extra


def main() -> None:
    """Run the command line."""
    try:
        require_extra("typer", "cli")
    except MissingExtra as error:
        print(f"hessmap: {error}", file=sys.stderr)
        sys.exit(2)
    from hessmap.cli import main as run

    run()


if __name__ == "__main__":
    main()
