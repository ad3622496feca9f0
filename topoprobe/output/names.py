"""What devices are called in a text, and how many names become one: ``GPU0-7``."""

import re
from collections.abc import Iterable, Mapping, Sequence

from topoprobe.model.topology import Device, Topology

_NUMBER = re.compile(r"([0-9]+)")
_COUNTS = re.compile(r"0|[1-9][0-9]{0,7}")


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


def product(name: str | None) -> str:
    """Return what pci.ids calls the product: ``ConnectX-7`` of ``MT2910 Family [ConnectX-7]``."""
    return (name or "").partition("[")[2].rpartition("]")[0] or name or ""


def layer(name: str | None) -> str | None:
    """Return the link layer of a port, None where the kernel has no word for it (EFA)."""
    return None if name in ("Unknown", "Unspecified") else name


def ranges(names: Iterable[str]) -> str:
    """Return ``GPU0-2, GPU5`` for names in order: those that count on become one.

    The number may stand inside: ``rdmap71-74s0``.
    """
    runs: list[list[str]] = []
    place: int | None = None
    for name in names:
        step = _step(runs[-1][-1], name) if runs else None
        if step is not None and (len(runs[-1]) == 1 or step == place):
            runs[-1].append(name)
            place = step
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


def _step(before: str, name: str) -> int | None:
    """Return which part of `name` is the number that counts on from `before`, if one does."""
    a, b = _NUMBER.split(before), _NUMBER.split(name)
    if len(a) != len(b):
        return None
    differ = [i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
    if len(differ) != 1:
        return None
    x, y = a[differ[0]], b[differ[0]]
    counts = _COUNTS.fullmatch(x) and _COUNTS.fullmatch(y)
    return differ[0] if counts and int(x) + 1 == int(y) else None


def _run(run: Sequence[str]) -> str:
    if len(run) == 1:
        return run[0]
    place = _step(run[0], run[1]) or 0
    parts, last = _NUMBER.split(run[0]), _NUMBER.split(run[-1])
    parts[place] += f"-{last[place]}"
    return "".join(parts)
