"""The command line: parse, call, render, exit code. No logic.

Imports are made where they are needed: ``--version`` and ``--help`` must cost hardly more
than the interpreter, and ``report --json`` never loads what prints tables.
"""

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code: 0 done, 1 input or node did not allow it, 2 usage."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args == ["--version"]:
        from topoprobe import __version__

        sys.stdout.write(f"topoprobe {__version__}\n")
        return 0
    from topoprobe.cli.parser import parse

    arguments = parse(args)
    from topoprobe.cli.run import run

    return run(arguments)
