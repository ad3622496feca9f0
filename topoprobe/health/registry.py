"""The checks, by the id of the finding that they give. A check never raises for bad data."""

from collections import Counter
from collections.abc import Callable, Iterable

from msgspec import Struct

from topoprobe.health.gpus import check_answers, check_present
from topoprobe.health.pcie import check_numa, check_width
from topoprobe.health.sources import (
    check_agreement,
    check_matrix,
    check_pynvml,
    check_sources,
    check_symmetry,
)
from topoprobe.model.report import Finding, FindingStatus, Verdict
from topoprobe.model.snapshot import Snapshot
from topoprobe.model.terms import Term
from topoprobe.model.topology import Topology

# Worst first: the verdict takes the first that occurs.
STATUSES: tuple[FindingStatus, ...] = ("fail", "warn", "unknown", "pass", "skip")


class Check(Struct, frozen=True):
    """One check: the text for `topoprobe explain`, and the function that gives its findings."""

    term: Term
    run: Callable[[Snapshot, Topology], Iterable[Finding]]


CHECKS = (
    Check(
        Term(
            "source-read",
            "could each source be read",
            "Says for every source whether it was read whole. What a source did not say is "
            "unknown in the report, with the reason beside it; nothing is guessed.",
        ),
        check_sources,
    ),
    Check(
        Term(
            "source-pynvml",
            "is the module pynvml that of nvidia-ml-py",
            "NVIDIA's binding nvidia-ml-py brings a module called pynvml. The package pynvml on "
            "PyPI is a deprecated wrapper of the same module name, which hides it.",
        ),
        check_pynvml,
    ),
    Check(
        Term(
            "source-nvidia-smi-text",
            "is the topo -m text whole",
            "A pasted or cut text may lack rows or cells. What could be read with certainty is "
            "in the report; the rest is unknown. Run nvidia-smi topo -m again for the whole.",
        ),
        check_matrix,
    ),
    Check(
        Term(
            "nvlink-symmetry",
            "do both directions of a pair show the same links",
            "nvidia-smi counts the active NVLinks of the row's GPU. NV17 in one direction and "
            "NV18 in the other means that the GPU with the smaller number has links down.",
            ("NV#",),
        ),
        check_symmetry,
    ),
    Check(
        Term(
            "source-agreement",
            "do the sources say the same",
            "NVML, nvidia-smi and /sys know parts of the same facts: NUMA nodes, lanes, the "
            "class of a pair. Where they differ, all values stay in the report under conflicts, "
            "with the one that was used and why; nothing is picked in silence.",
        ),
        check_agreement,
    ),
    Check(
        Term(
            "gpu-present",
            "do bus and driver show the same GPUs",
            "A GPU on the bus that NVML does not show was not started by the driver, or not given "
            "to this container. One in NVML that /sys lacks is hidden by a container or by WSL: "
            "its place is unknown, which is no fault of the GPU.",
        ),
        check_present,
    ),
    Check(
        Term(
            "gpu-answers",
            "does the driver answer for each GPU",
            "A GPU that is lost, or whose driver calls never return or crash, takes a job down "
            "with it. The function at which NVML stuck is named; the other GPUs are read anyway.",
        ),
        check_answers,
    ),
    Check(
        Term(
            "pcie-width",
            "do PCIe links run on all lanes that both ends have",
            "A GPU, NIC, NVMe drive or switch whose link trained on fewer lanes than both ends "
            "offer moves data at that fraction of its speed. Width does not change when a "
            "device idles (the generation does), so this is a fault of card, slot or riser, "
            "unless the board splits the lanes of a slot by design. A GPU or switch narrower "
            "than the best of its kind on the node is a fault; what all of a kind share, or a "
            "drive or NIC, is a warning.",
            ("line", "payload"),
        ),
        check_width,
    ),
    Check(
        Term(
            "numa-node",
            "is the NUMA node of each GPU and NIC known",
            "On a machine with several NUMA nodes a device whose node the firmware or "
            "hypervisor hides cannot be placed: processes may be bound to the far socket, and "
            "NCCL may choose a far NIC. Common in virtual machines.",
            ("SYS", "NODE"),
        ),
        check_numa,
    ),
)

TERMS = tuple(check.term for check in CHECKS)


def run_checks(snapshot: Snapshot, topology: Topology) -> tuple[Finding, ...]:
    """Return the findings of all checks, worst first."""
    found = [finding for check in CHECKS for finding in check.run(snapshot, topology)]
    return tuple(sorted(found, key=lambda finding: STATUSES.index(finding.status)))


def verdict(findings: Iterable[Finding]) -> Verdict:
    """Return the counts by status and the worst status; unknown where nothing was checked."""
    counts = Counter(finding.status for finding in findings)
    worst: FindingStatus = next((s for s in STATUSES if counts[s]), "unknown")
    return Verdict(status=worst, counts={status: counts[status] for status in STATUSES})
