"""Run a parsed command and turn errors into one line and an exit code."""

import argparse
import gc
import os
import signal
import sys

from topoprobe.model.errors import TopoprobeError, UsageError
from topoprobe.model.units import parse_duration

# Gaps of a capture that are told; all of them are in the capture.
_GAPS_SHOWN = 8


def run(arguments: argparse.Namespace) -> int:
    """Run the command; every foreseen error is one line on stderr."""
    # A scheduler ends us with SIGTERM: leave as on Ctrl-C, so that children are ended too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        commands = {"report": _report, "capture": _capture, "explain": _explain}
        return commands[arguments.command](arguments)
    except TopoprobeError as error:
        say(str(error))
        return error.exit_code
    except BrokenPipeError:
        # The reader (head, less) has gone; leave without a second error at shutdown.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    except RecursionError:
        say("the input is nested too deeply")
        return 1


def say(line: str) -> None:
    """Write one line of narration to stderr, control characters removed."""
    from topoprobe.output.clean import clean

    sys.stderr.write(f"topoprobe: {clean(line)}\n")
    sys.stderr.flush()


def _report(arguments: argparse.Namespace) -> int:
    from topoprobe import pipeline

    deadline = parse_duration(arguments.deadline)
    if arguments.demo is not None:
        if arguments.source is not None or arguments.measure or arguments.root != "/":
            raise UsageError("--demo shows a made-up machine: without --from, --measure, --root")
        from topoprobe.sources.demos import demo_path, demo_titles

        if arguments.demo == "list":
            if arguments.json or arguments.output:
                raise UsageError("--demo list prints names: without --json and -o")
            return _list_demos(demo_titles())
        # As for a live report, below.
        gc.disable()
        report = pipeline.load(demo_path(arguments.demo))
        say(f"demo {arguments.demo}: {demo_titles()[arguments.demo]}")
    elif arguments.source is not None:
        if arguments.measure or arguments.root != "/":
            raise UsageError("--from shows a file: it goes with neither --measure nor --root")
        report = pipeline.load(arguments.source)
    else:
        # A report lives for a fifth of a second and keeps all that it makes: looking for
        # garbage is a tenth of that time.
        gc.disable()
        if arguments.measure and os.path.realpath(arguments.root) != "/":
            raise UsageError("--measure measures this machine: it does not go with --root")
        snapshot = pipeline.inspect_node(
            arguments.root, deadline, cross_check=arguments.cross_check
        )
        report = pipeline.make_report(snapshot)
        for source in report.sources:
            if source.status not in ("ok", "absent"):
                say(f"{source.name}: {source.detail or source.status}")
        pipeline.require_devices(report, arguments.root)
        if arguments.measure:
            gc.enable()
            report = pipeline.measure(report, snapshot, say)
    if arguments.json:
        from topoprobe.output.json import to_json

        _write(to_json(report).decode(), arguments.output)
    elif arguments.output:
        import io

        from topoprobe.output.text import print_report

        buffer = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        print_report(report, buffer, full=arguments.full, wide=arguments.wide)
        buffer.seek(0)
        _write(buffer.read(), arguments.output)
    else:
        from topoprobe.output.text import print_report

        print_report(report, sys.stdout, full=arguments.full, wide=arguments.wide)
        sys.stdout.flush()
    return 130 if any(finding.id == "bench-interrupted" for finding in report.findings) else 0


def _list_demos(titles: dict[str, str]) -> int:
    width = max(len(name) for name in titles)
    for name, title in titles.items():
        sys.stdout.write(f"{name:{width}}  {title}\n")
    return 0


def _write(text: str, path: str | None) -> None:
    if path is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    from topoprobe.output.files import write_atomically

    write_atomically(path, text)
    say(f"written to {path}")


def _capture(arguments: argparse.Namespace) -> int:
    from topoprobe import pipeline

    gaps = pipeline.capture(
        arguments.output,
        arguments.root,
        parse_duration(arguments.deadline),
        redact=arguments.redact,
        key_path=arguments.redact_key,
    )
    for part, why in list(gaps.items())[:_GAPS_SHOWN]:
        say(f"{part}: {why}")
    if len(gaps) > _GAPS_SHOWN:
        say(f"and {len(gaps) - _GAPS_SHOWN} more gaps, in manifest.json of the capture")
    if arguments.redact and not arguments.redact_key:
        say("redacted without a key: who guesses a name can check the guess; see --redact-key")
    say(f"written to {arguments.output}")
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    from topoprobe.terms import ALL, explain

    if not arguments.term:
        width = max(len(term.name) for term in ALL)
        for term in ALL:
            sys.stdout.write(f"{term.name:{width}}  {term.title}\n")
        return 0
    import textwrap

    term = explain(" ".join(arguments.term))
    sys.stdout.write(f"{term.name}: {term.title}\n\n{textwrap.fill(term.text, 78)}\n")
    if term.see:
        sys.stdout.write(f"\nsee also: {', '.join(term.see)}\n")
    return 0
