"""What devices are called in a text, and how many names become one: ``GPU0-7``."""

import re
from collections.abc import Iterable, Mapping, Sequence

from topoprobe.model.topology import Device, Topology

_NUMBERED = re.compile(r"(.*?)(0|[1-9][0-9]{0,7})", re.DOTALL)


def labels_of(topology: Topology) -> dict[str, str]:
    """Return device key → a name that no other device has: alias, RDMA name, interface, address.

    A name that two devices share, such as that of a bond, names neither.
    """
    names = {device.key: _name(device) for device in topology.devices}
    seen: dict[str, int] = {}
    for name in names.values():
        seen[name] = seen.get(name, 0) + 1
    return {key: name if seen[name] == 1 else short(key) for key, name in names.items()}


def short(key: str) -> str:
    """Return a key without the PCI domain that nearly every machine has."""
    return key.removeprefix("0000:")


def _name(device: Device) -> str:
    return device.alias or next(iter([*device.rdma, *device.netdevs]), None) or short(device.key)


def ranges(names: Iterable[str]) -> str:
    """Return ``GPU0-2, GPU5`` for names in order: those that count on become one."""
    runs: list[list[str]] = []
    for name in names:
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(_run(run) for run in runs)


def span(names: Sequence[str]) -> str:
    """Return one name for names that stand beside each other: ``GPU0-7``, ``eth0–ib3``."""
    counted = ranges(names)
    return counted if "," not in counted else f"{names[0]}–{names[-1]}"


def pairs(joined: Iterable[tuple[str, str]], most: int = 4) -> str:
    """Return ``GPU0–GPU1-3, GPU1–GPU4`` for pairs of names, the first `most` groups of them."""
    partners: dict[str, list[str]] = {}
    for a, b in joined:
        partners.setdefault(a, []).append(b)
    return first_of([f"{a}–{ranges(bs)}" for a, bs in partners.items()], most)


def first_of(names: Sequence[str], most: int = 4) -> str:
    """Return `names` in a row, those beyond `most` as a number."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def by_value(values: Mapping[str, str]) -> dict[str, list[str]]:
    """Return value → the names that have it, in order of their first."""
    found: dict[str, list[str]] = {}
    for name, value in values.items():
        found.setdefault(value, []).append(name)
    return found


def _follows(before: str, name: str) -> bool:
    a, b = _NUMBERED.fullmatch(before), _NUMBERED.fullmatch(name)
    return a is not None and b is not None and a[1] == b[1] and int(a[2]) + 1 == int(b[2])


def _run(run: Sequence[str]) -> str:
    last = _NUMBERED.fullmatch(run[-1])
    return run[0] if len(run) == 1 or last is None else f"{run[0]}-{last[2]}"
