"""What may be typed."""

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from topoprobe import __version__

_EXAMPLES = """\
examples:
  topoprobe report                        this node: what is connected, how fast it could be
  topoprobe report --measure quick        and how fast host memory and all_reduce are (20 s)
  topoprobe report --full                 with tree, links, facts and all matrices
  topoprobe report --json -o node.json    for programs
  topoprobe report --from topo.txt        a capture, a report, texts of nvidia-smi, lspci
  topoprobe report --demo hgx-h100-8      a made-up machine; --demo list names them all
  topoprobe capture -o node.tar.xz        this node in a file; `report --from` shows it anywhere
  topoprobe explain PIX                   what a word means

exit codes: 0 done (also with gaps), 1 input or node did not allow it, 2 wrong usage
"""


class _Parser(argparse.ArgumentParser):
    """argparse, but wrong usage is one line, not the whole usage text before it."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line and exit 2."""
        line = "".join(c if c.isprintable() else "?" for c in message)
        sys.stderr.write(f"{self.prog}: {line}; see {self.prog} --help\n")
        sys.exit(2)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the arguments; exits 2 with one line on wrong usage."""
    parser = _Parser(
        prog="topoprobe",
        description="Inspect, measure and judge the interconnect of a GPU node.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"topoprobe {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_report(commands)
    _add_capture(commands)
    explain = commands.add_parser(
        "explain",
        help="what a path class, a check or a figure means",
        description="Explain a word.",
    )
    explain.add_argument("term", nargs="*", metavar="TERM", help="a word; none lists all")
    return parser.parse_args(argv)


def _add_report(commands: "argparse._SubParsersAction[_Parser]") -> None:
    report = commands.add_parser(
        "report",
        help="inspect this node, or a saved text or report",
        description="Inspect this node (or saved texts of nvidia-smi and lspci, or a report): "
        "verdict and levels first, then what is wrong, then what is not known and why.",
    )
    report.add_argument("--json", action="store_true", help="print the report as JSON")
    report.add_argument(
        "--full", action="store_true", help="add tree, links, facts and more matrices"
    )
    report.add_argument("--wide", action="store_true", help="fold, wrap and cut nothing")
    report.add_argument(
        "--measure",
        choices=("quick",),
        help="measure host memory and all_reduce on this node (under 20 s; needs topoprobe[bench] "
        "for all_reduce)",
    )
    report.add_argument(
        "--from",
        dest="source",
        metavar="FILE",
        help="a capture, a saved report, or texts of nvidia-smi topo -m, topo -p2p, nvlink -s, "
        "lspci -vv, lspci -tv, also several in one file; told apart by content",
    )
    report.add_argument(
        "--demo",
        nargs="?",
        const="list",
        metavar="NAME",
        help="a made-up machine, without a GPU; `--demo list` names them, some with faults",
    )
    report.add_argument(
        "--root", default="/", metavar="DIR", help="read DIR/sys and DIR/proc (default /)"
    )
    report.add_argument(
        "--deadline", default="10s", metavar="TIME", help="end reading after TIME: 3, 3s, 2m"
    )
    report.add_argument(
        "--no-cross-check",
        dest="cross_check",
        action="store_false",
        help="do not run nvidia-smi beside NVML to compare the two",
    )
    report.add_argument(
        "-o", "--output", metavar="FILE", help="write to FILE, whole or not at all"
    )


def _add_capture(commands: "argparse._SubParsersAction[_Parser]") -> None:
    capture = commands.add_parser(
        "capture",
        help="save all that a report of this node is made from",
        description="Save this node to a file that `topoprobe report --from` shows anywhere: "
        "what the readers said, the raw files of /sys and /proc, nvidia-smi texts, kernel lines, "
        "environment of communication libraries.",
    )
    capture.add_argument(
        "-o", "--output", metavar="FILE", required=True, help="the file to write (.tar.xz)"
    )
    capture.add_argument(
        "--redact",
        action="store_true",
        help="replace names of hosts and users, serial numbers, UUIDs and addresses, alike in all "
        "captures",
    )
    capture.add_argument(
        "--redact-key",
        metavar="FILE",
        help="redact with the secret in FILE, so that nobody without it can try out names",
    )
    capture.add_argument(
        "--root", default="/", metavar="DIR", help="capture DIR/sys and DIR/proc (default /)"
    )
    capture.add_argument(
        "--deadline", default="10s", metavar="TIME",
        help="end reading after TIME, and copying after as much again: 3, 3s, 2m",
    )  # fmt: skip
