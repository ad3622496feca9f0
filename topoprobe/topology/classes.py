"""Path classes by nvidia-smi's definitions: how a label is read, and what each one means."""

import re

from topoprobe.model.terms import Term

_NVLINKS = re.compile(r"NV[1-9][0-9]{0,3}")
_PCIE = ("PIX", "PXB", "PHB", "NODE", "SYS")


def class_of_label(label: str) -> str | None:
    """Return our class for a cell that nvidia-smi prints, None for one that we do not know.

    SOC is what drivers up to about R410 print for SYS.
    """
    if label == "SOC":
        return "SYS"
    return label if label in _PCIE or label == "C2C" or _NVLINKS.fullmatch(label) else None


TERMS = (
    Term(
        "PIX",
        "at most one PCIe switch between the two",
        "The two devices hang below the same PCIe switch, or are functions of one device. "
        "Traffic between them never reaches the CPU, so GPUDirect RDMA and peer copies run at "
        "the speed of the narrower PCIe link. The best place for a NIC is PIX from its GPU.",
        ("PXB", "PHB", "NODE", "SYS"),
    ),
    Term(
        "PXB",
        "several PCIe switches, no CPU",
        "The way goes through more than one PCIe switch and turns around before the CPU's host "
        "bridge. Bandwidth is that of the narrowest hop; uplinks between switches are shared.",
        ("PIX", "PHB"),
    ),
    Term(
        "PHB",
        "through one PCIe host bridge of the CPU",
        "Both devices hang below the same host bridge, on different root ports: traffic turns "
        "around inside the CPU. Peer copies may be slower than below a switch, and some CPUs "
        "or virtual machines refuse them.",
        ("PIX", "NODE"),
    ),
    Term(
        "NODE",
        "between host bridges of one NUMA node",
        "The devices hang below different host bridges of the same NUMA node; traffic crosses "
        "the CPU's own fabric. NCCL has no such class and calls it PHB.",
        ("PHB", "SYS"),
    ),
    Term(
        "SYS",
        "across the link between NUMA nodes",
        "The way crosses the interconnect between NUMA nodes or sockets (UPI, xGMI), the "
        "slowest and most shared of them. Old drivers print SOC. Choose GPUs and NICs that "
        "are not SYS from each other where you can.",
        ("NODE", "SOC"),
    ),
    Term("SOC", "the old name of SYS", "Drivers up to about R410 print SOC for SYS.", ("SYS",)),
    Term(
        "NV#",
        "direct NVLinks, # of them",
        "The two GPUs are joined by # NVLinks, directly or through NVSwitch. The number counts "
        "links and says nothing of their generation: NV4 on an A6000 pair is 56 GB/s, NV18 on "
        "H100 450 GB/s in one direction. A number below that of the other GPUs of the node "
        "means that links are down.",
        ("C2C", "PIX"),
    ),
    Term(
        "C2C",
        "NVLink chip-to-chip between a Grace CPU and its GPU",
        "On GH200 and GB200 the GPU's way to its CPU is NVLink-C2C, not the PCIe link that "
        "the GPU also shows (often x1).",
        ("NV#",),
    ),
    Term("X", "the device itself", "The diagonal of the matrix: no path at all.", ()),
    Term(
        "path",
        "the way from one device to another",
        "The links between two devices, and a class for them: NV#, C2C, PIX, PXB, PHB, NODE or "
        "SYS. The class says how close two devices are; the bottleneck is the slowest link on "
        "the way and bounds what any copy can reach.",
        ("PIX", "SYS", "NV#"),
    ),
)
