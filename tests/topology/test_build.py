"""Fusion of hand-made records: what happens where a source is missing, odd, or disagrees."""

from topoprobe.model.gpu import GpuFacts, NvmlGpu, NvmlLink, NvmlPair, NvmlRecord, SmiGpu
from topoprobe.model.snapshot import HostRecord, NumaRecord, PciRecord, Snapshot, SysfsRecord
from topoprobe.model.speed import LinkSpeed
from topoprobe.model.topology import Device, Topology
from topoprobe.sources.nvidia_smi import parse_gpus
from topoprobe.topology.build import build


def pci(address: str, node: int | None = 0, vendor: int = 0x10DE) -> PciRecord:
    return PciRecord(
        address=address, above=(f"pci{address[:-6]}00",) if len(address) == 12 else (),
        class_code=0x030200, vendor=vendor, device=0x2330, numa_node=node,
    )  # fmt: skip


def snapshot(
    *functions: PciRecord, nvml: NvmlRecord | None = None, nodes: int = 2, **more: object
) -> Snapshot:
    numa = tuple(NumaRecord(node=n, cpus=f"{n}", memory_bytes=1 << 30) for n in range(nodes))
    sysfs = SysfsRecord(pci=functions, numa=numa) if functions else None
    return Snapshot(created="now", sysfs=sysfs, nvml=nvml, **more)  # type: ignore[arg-type]


def two(**of_pair: object) -> NvmlRecord:
    gpus = tuple(NvmlGpu(index=i, address=f"0000:{i + 1:02x}:00.0", name="G") for i in range(2))
    pair = NvmlPair(a=0, b=1, **of_pair)  # type: ignore[arg-type]
    return NvmlRecord(gpus=gpus, pairs=(pair,))


def device(topology: Topology, key: str) -> Device:
    return next(d for d in topology.devices if d.key == key)


def test_nvml_alone_makes_a_map() -> None:
    topology = build(snapshot(nvml=two(ancestor="NODE", p2p={"read": "OK"})))
    assert [d.alias for d in topology.devices] == ["GPU0", "GPU1"]
    (path,) = topology.paths
    assert (path.class_, path.sources["class"]) == ("NODE", "nvml (common ancestor)")
    assert path.p2p == {"read": "OK"}
    assert device(topology, "0000:01:00.0").unknown["parent"] == "/sys does not show this GPU"


def test_a_gpu_that_sys_does_not_show_has_the_link_that_nvml_tells() -> None:
    gpu = NvmlGpu(
        index=0, address="0000:01:00.0", current=LinkSpeed(1, 8), maximum=LinkSpeed(4, 16),
        device_maximum=LinkSpeed(5, None),
    )  # fmt: skip
    (link,) = build(snapshot(nvml=NvmlRecord(gpus=(gpu,)))).links
    assert (link.key, link.a, link.b) == ("pcie:0000:01:00.0", None, "0000:01:00.0")
    assert (link.current, link.maximum) == (LinkSpeed(1, 8), LinkSpeed(4, 16))
    assert link.unknown["a"] == "/sys does not show this GPU"


def test_nothing_at_all_is_an_empty_map() -> None:
    assert build(Snapshot(created="now")) == Topology()


def test_no_ancestor_and_no_tree_is_an_unknown_class_with_a_reason() -> None:
    (path,) = build(snapshot(nvml=two())).paths
    assert path.class_ is None
    assert path.unknown["class"]


def test_a_domain_beyond_16_bits_is_one_device_in_both_views() -> None:
    # NVML prints 00010000:01:00.0, the kernel 10000:01:00.0; both become this address.
    record = NvmlRecord(gpus=(NvmlGpu(index=0, address="10000:01:00.0", uuid="GPU-1"),))
    topology = build(snapshot(pci("10000:01:00.0"), nvml=record))
    gpus = [d for d in topology.devices if d.kind == "gpu"]
    assert [(gpu.key, gpu.uuid) for gpu in gpus] == [("10000:01:00.0", "GPU-1")]


def test_a_node_that_the_firmware_hides_comes_from_the_driver() -> None:
    gpu = NvmlGpu(index=0, address="0000:01:00.0", cpus="8-15", memory_nodes=(1,))
    found = device(
        build(snapshot(pci("0000:01:00.0", None), nvml=NvmlRecord(gpus=(gpu,)))), gpu.address or ""
    )
    assert (found.numa, found.cpus) == (1, "8-15")
    assert found.sources["numa"] == "nvml (memory affinity)"
    assert "numa" not in found.unknown


def test_two_near_nodes_are_no_answer() -> None:
    gpu = NvmlGpu(index=0, address="0000:01:00.0", memory_nodes=(0, 1))
    topology = build(snapshot(pci("0000:01:00.0", None), nvml=NvmlRecord(gpus=(gpu,))))
    assert device(topology, "0000:01:00.0").numa is None


def test_different_nodes_are_a_conflict_and_sysfs_is_used() -> None:
    gpu = NvmlGpu(index=0, address="0000:01:00.0", memory_nodes=(1,))
    topology = build(snapshot(pci("0000:01:00.0", 0), nvml=NvmlRecord(gpus=(gpu,))))
    assert device(topology, "0000:01:00.0").numa == 0
    (conflict,) = topology.conflicts
    assert (conflict.subject, conflict.field, conflict.used) == ("0000:01:00.0", "numa", "sysfs")
    assert conflict.values == {"sysfs": "0", "nvml": "1"}


def test_ends_that_count_differently_are_a_conflict() -> None:
    def gpu(index: int, links: int) -> NvmlGpu:
        far = f"0000:{2 - index:02x}:00.0"
        wires = tuple(
            NvmlLink(
                index=i, state="up", version=4, speed_mbps=25000, remote=far, remote_kind="gpu"
            )
            for i in range(links)
        )
        return NvmlGpu(index=index, address=f"0000:{index + 1:02x}:00.0", links=wires)

    functions = pci("0000:01:00.0"), pci("0000:02:00.0")
    topology = build(snapshot(*functions, nvml=NvmlRecord(gpus=(gpu(0, 4), gpu(1, 3)))))
    path = next(p for p in topology.paths if p.b == "0000:02:00.0")
    assert path.class_ == "NV3"
    (conflict,) = topology.conflicts
    assert (conflict.field, conflict.used) == ("nvlinks", "nvml, 0000:02:00.0")


def test_a_lost_gpu_without_address_is_not_guessed_where_two_are_left() -> None:
    record = NvmlRecord(gpus=(NvmlGpu(index=0, unanswered="lost"),))
    topology = build(snapshot(pci("0000:01:00.0"), pci("0000:02:00.0"), nvml=record))
    assert device(topology, "gpu:0").alias == "GPU0"
    assert device(topology, "0000:01:00.0").alias is None


def test_a_gpu_of_another_maker_has_no_nvml_to_miss() -> None:
    topology = build(snapshot(pci("0000:01:00.0", vendor=0x1002)))
    gpu = device(topology, "0000:01:00.0")
    assert gpu.kind == "gpu"
    assert "gpu" not in gpu.unknown


def test_an_unknown_link_version_keeps_its_rate() -> None:
    link = NvmlLink(index=0, state="up", version=12, speed_mbps=400_000, remote_hidden=True)
    gpu = NvmlGpu(index=0, address="0000:01:00.0", links=(link,), facts=GpuFacts(nvlink_count=1))
    topology = build(snapshot(pci("0000:01:00.0"), nvml=NvmlRecord(gpus=(gpu,))))
    found = next(k for k in topology.links if k.kind == "nvlink")
    assert (found.signal_GBps, found.version, found.b) == (400.0, None, "nvswitch:hidden")
    assert "version 12" in found.unknown["version"]


def test_pairs_of_gpus_that_are_not_there_are_left_out() -> None:
    record = NvmlRecord(
        gpus=(NvmlGpu(index=0, address="0000:01:00.0"),), pairs=(NvmlPair(a=0, b=7),)
    )
    assert build(snapshot(pci("0000:01:00.0"), nvml=record)).devices


def test_the_list_of_nvidia_smi_names_gpus_where_nvml_cannot() -> None:
    text = (
        "0, 00000000:01:00.0, GPU-1, 24576, NVIDIA GeForce RTX 3090\n"
        "1, 00010000:02:00.0, [N/A], [N/A], A, B\nUnable to determine the device handle\n"
    )
    listed = parse_gpus(text)
    assert listed == (
        SmiGpu(index=0, address="0000:01:00.0", uuid="GPU-1", name="NVIDIA GeForce RTX 3090",
               memory_bytes=24 << 30),
        SmiGpu(index=1, address="10000:02:00.0", name="A, B"),
    )  # fmt: skip
    topology = build(snapshot(pci("0000:01:00.0"), smi_gpus=listed, host=HostRecord()))
    assert device(topology, "0000:01:00.0").alias == "GPU0"
    assert device(topology, "0000:01:00.0").sources["name"] == "nvidia-smi"
    assert device(topology, "10000:02:00.0").kind == "gpu"
