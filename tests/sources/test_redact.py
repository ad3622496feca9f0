"""Redaction: planted names are gone from the bytes of the archive, and equal things stay equal."""

import lzma
import re
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.made import Maker
from topoprobe import pipeline
from topoprobe.model.gpu import Fabric, GpuFacts, MigDevice, NvmlGpu, NvmlRecord
from topoprobe.model.snapshot import Snapshot
from topoprobe.sources._redact_words import Identity, Redactor
from topoprobe.sources.archive import read_capture
from topoprobe.sources.capture import collect, encode
from topoprobe.sources.raw_tree import RawEntry, RawTree
from topoprobe.sources.redact import OPEN_KEY, Parts, redact
from topoprobe.sources.rootfs import Root
from topoprobe.sources.vpd import submodel

HOST, SHORT, DOMAIN = "quokka-17.cluster.example.com", "quokka-17", "cluster.example.com"
USER, SERIAL = "mallory", "1321020012345"
UUID, MIG = "b1c2d3e4-0a1b-4c2d-8e3f-a0b1c2d3e4f5", "c0ffee00-1111-4222-8333-444455556666"
CLUSTER = "deadbeef-aaaa-4bbb-8ccc-dddd00001111"
MAC, IPOIB_GUID = "94:6d:ae:12:34:56", "94:6d:ae:03:00:ab:cd:ef"
IPOIB = f"00:00:10:49:fe:80:00:00:00:00:00:00:{IPOIB_GUID}"
GUID, IP4, IP6 = "946d:ae03:0012:9f9f", "192.168.77.42", "2001:db8:77::42"

# Each secret as it may be spelled; none of these spellings may be left.
SECRETS = (
    HOST, SHORT, DOMAIN, USER, SERIAL, UUID, MIG, CLUSTER, MAC, IPOIB_GUID, GUID, IP4, IP6,
    GUID.replace(":", ""), MAC.replace(":", "-"), MAC.replace(":", ""), "quokka-18",
)  # fmt: skip
PLANT = (
    f" on {HOST} ({SHORT.upper()}, next to quokka-18), user {USER}@{SHORT}, /home/{USER}/x "
    f"serial {SERIAL} GPU-{UUID} MIG-{MIG} {CLUSTER.upper()} {MAC} mac:{MAC} "
    f"{MAC.replace(':', '-')} enx{MAC.replace(':', '')} {IPOIB} {GUID} "
    f"0x{GUID.replace(':', '')} {GUID.replace(':', '')} "
    f"{IP4}:29500, addr:{IP6}, [{IP6}]. {IP4}."
)


def node(maker: Maker) -> Parts:
    """A made machine with a record of NVML, as a capture has it."""
    root = str(maker("hgx-h100-4", "xid:gpu1").root)
    snapshot = pipeline.inspect_node(root)
    gpu = NvmlGpu(
        index=0, address="0000:17:00.0", uuid=f"GPU-{UUID}", name="NVIDIA H100 80GB HBM3",
        mig=(MigDevice(uuid=f"MIG-{MIG}", name="MIG 1g.10gb"),),
        facts=GpuFacts(serial=SERIAL, vbios="96.00.74.00.01", brand="NVIDIA",
                       fabric=Fabric(state="completed", cluster=CLUSTER, health={"x": "false"})),
        unknown={"serial": "not supported"},
    )  # fmt: skip
    parts = collect(Root(root), snapshot, 10)
    snapshot = msgspec.structs.replace(
        parts.snapshot,
        host=msgspec.structs.replace(snapshot.host, name=HOST),
        nvml=NvmlRecord(
            driver="550.163.01", gpus=(gpu,), excluded={"0000:99:00.0": f"GPU-{UUID}"}
        ),
        environment={
            "NCCL_SOCKET_IFNAME": "eth0", "NCCL_TOPO_FILE": f"/home/{USER}/t.xml",
            "NCCL_COMM_ID": "anotherhost:29500", "CUDA_VISIBLE_DEVICES": f"GPU-{UUID[:8]}",
        },
        texts={"topo -m": "\tGPU0\nGPU0\t X \n"},
    )  # fmt: skip
    log = ("[ 1.0] NVRM: Xid (PCI:0000:17:00): 31, pid=4711, name=secretjob, Ch 00000008",)
    snapshot = msgspec.structs.replace(snapshot, kernel_log=(*(snapshot.kernel_log or ()), *log))
    return msgspec.structs.replace(parts, snapshot=snapshot, gaps={"x": "no"})


FIXED = {"schema", "created", "status", "state", "kind", "remote_kind", "capability"}
# Names of products keep their words, numbers of versions their points: no secret is planted there.
FACTS = {"vendor", "product", "model", "cpu_model", "ids_name", "driver", "virtualisation",
         "firmware", "vbios", "nvml", "cuda"}  # fmt: skip
NAMING = {"uuid", "serial", "guid", "system_guid", "mac", "cluster"}


def plant(value: Any, key: str = "") -> Any:
    """Add all secrets to every string of a snapshot that is not of a fixed form."""
    if isinstance(value, dict):
        return {k: plant(v, "" if key == "unknown" else k) for k, v in value.items()}
    if isinstance(value, list):
        return [plant(v, key) for v in value]
    if not isinstance(value, str) or key in FIXED | FACTS:
        return value
    return value + PLANT


def planted(parts: Parts) -> Parts:
    tree = plant(msgspec.to_builtins(parts.snapshot))
    # What names the node itself is as the readers give it.
    tree["host"]["name"] = HOST
    tree["nvml"]["gpus"][0]["facts"]["serial"] = SERIAL
    tree["nvml"]["gpus"][0]["uuid"] = f"GPU-{UUID}"
    tree["nvml"]["gpus"][0]["mig"][0]["uuid"] = f"MIG-{MIG}"
    entries = {}
    for path, entry in parts.raw.entries.items():
        name = path.rpartition("/")[2]
        if entry.data is None or name == "config":
            entries[path] = entry
        elif name == "vpd":
            entries[path] = RawEntry(data=entry.data[:-1] + PLANT.encode())
        else:
            text = PLANT
            if name in ("fw_ver", "version", "information"):
                text = text.replace(IP4, "")
            if "/dmi/" in path:
                named = f"{HOST}|{SHORT}|{USER}|{SERIAL}|quokka-18"
                text = re.sub(named, "", text, flags=re.IGNORECASE)
            entries[path] = RawEntry(data=entry.data + text.encode() + b"\n")
    entries["/proc/sys/kernel/hostname"] = RawEntry(data=HOST.encode() + b"\n")
    entries["/proc/cmdline"] = RawEntry(
        data=f"BOOT_IMAGE=/x root=UUID={UUID} ip={IP4}::gw:secretword iommu=pt x={PLANT}".encode()
    )
    return msgspec.structs.replace(
        parts,
        snapshot=msgspec.convert(tree, Snapshot),
        raw=RawTree(entries, {"/sys/x": PLANT}),
        texts={"nvidia-smi -q": SMI_Q + PLANT},
        gaps={"/sys/x": PLANT},
    )


SMI_Q = f"""
    Serial Number                         : {SERIAL}
        Chassis Serial Number             : 9998887776665
    GPU UUID                              : GPU-{UUID}
    Processes
        Process ID                        : 4711
            Type                          : C
            Name                          : /opt/bin/secretjob --token x
|    0   N/A  N/A      4711      C   secretjob                        123MiB |
"""


def archive(parts: Parts) -> bytes:
    return lzma.decompress(encode(parts, "topoprobe 1", "open"))


def test_no_planted_secret_survives(maker: Maker) -> None:
    parts = planted(node(maker))
    before = archive(parts).decode("utf-8", "replace").lower()
    hidden = redact(parts, [], [USER], OPEN_KEY)
    after = archive(hidden).decode("utf-8", "replace").lower()
    for secret in (*SECRETS, "secretjob", "anotherhost", "secretword", "9998887776665"):
        assert secret.lower() in before
        at = after.find(secret.lower())
        assert at < 0, after[max(0, at - 200) : at + 60]
    # What is no secret is still there.
    for fact in ("0000:17:00.0", "nvidia h100 80gb hbm3", "550.163.01", "96.00.74.00.01",
                 "nccl_socket_ifname", "iommu=pt", "xid (pci:0000:"):  # fmt: skip
        assert fact in after


def test_the_same_node_twice_gives_the_same_bytes_and_replays_to_the_same_map(
    maker: Maker,
) -> None:
    parts = node(maker)
    once, again = (encode(redact(parts, [], [USER], OPEN_KEY), "t", "open") for _ in range(2))
    assert once == again
    replayed = pipeline.make_report(read_capture(once, "f"))
    plain = pipeline.make_report(parts.snapshot)
    assert replayed.topology.links == plain.topology.links
    assert replayed.topology.paths == plain.topology.paths
    assert [d.key for d in replayed.topology.devices] == [
        d.key if d.kind != "mig" else f"mig:{hidden_mig(parts)}" for d in plain.topology.devices
    ]


def hidden_mig(parts: Parts) -> str:
    nvml = redact(parts, [], [USER], OPEN_KEY).snapshot.nvml
    assert nvml is not None
    return nvml.gpus[0].mig[0].uuid


def test_reasons_stay_and_visible_devices_still_name_their_gpu(maker: Maker) -> None:
    snapshot = redact(node(maker), [], [USER], OPEN_KEY).snapshot
    assert snapshot.nvml is not None
    gpu = snapshot.nvml.gpus[0]
    assert gpu.unknown == {"serial": "not supported"}
    assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", gpu.uuid or "")
    assert gpu.uuid != f"GPU-{UUID}"
    environment = snapshot.environment or {}
    assert (gpu.uuid or "")[:12] == environment["CUDA_VISIBLE_DEVICES"]
    assert snapshot.nvml.excluded == {"0000:99:00.0": gpu.uuid}
    assert environment["NCCL_SOCKET_IFNAME"] == "eth0"


def test_vital_product_data_keep_their_model_only(maker: Maker) -> None:
    body = b"SN\x05S1234" + b"V0\x1cMLX:MN=MLNX:SMDL=SW_MNG:U=77"[:31]
    data = b"\x90" + len(body).to_bytes(2, "little") + body + b"\x78"
    assert submodel(data) == "SW_MNG"
    parts = node(maker)
    raw = RawTree({"/sys/devices/x/vpd": RawEntry(data=data)}, {})
    hidden = redact(msgspec.structs.replace(parts, raw=raw), [], [], OPEN_KEY)
    left = hidden.raw.entries["/sys/devices/x/vpd"].data or b""
    assert submodel(left) == "SW_MNG"
    assert b"S1234" not in left


def words(key: bytes = OPEN_KEY, **names: tuple[str, ...]) -> Redactor:
    return Redactor(Identity(**names), key)


@pytest.mark.parametrize(
    "text",
    [
        "0000:3b:00.0", "10000:e1:00.0", "pci0000:00", "00000000:3B:00.0", "host-bridge:0000:00",
        "550.163.01", "96.00.74.00.01", "28.39.1002", "0-31,64-95", "12:34:56", "16.0 GT/s PCIe",
        "127.0.0.1", "0.0.0.0", "255.255.255.0", "::1", "::", "00:00:00:00:00:00",
        "ff:ff:ff:ff:ff:ff", "0x0000000000000001", "1234567890123456", "MT_0000000838",
        "00000000-0000-0000-0000-000000000000", "NVIDIA H100 80GB HBM3", "G520.0200.00.05",
        "Linux 6.1.0-18-amd64", "/srv/x", "node0", "GPU3", "std::vector", "GPU-????????",
        "Serial Number : N/A", "serial: enabled",
    ],
)  # fmt: skip
def test_what_is_no_name_stays(text: str) -> None:
    assert words(hosts=("gpu3", "localhost"), users=("root",)).text(text) == text


def test_a_host_called_by_a_common_word_takes_no_facts_along() -> None:
    assert (
        words(hosts=("nvidia",), users=("gpu",)).text("driver nvidia gpu") == "driver nvidia gpu"
    )


def test_forms_stay_what_they_are() -> None:
    made = words()
    assert re.fullmatch("02(:[0-9a-f]{2}){5}", made.text(MAC))
    assert re.fullmatch("fd[0-9a-f]{2}(:[0-9a-f]{4}){7}", made.text(IP6))
    assert re.fullmatch("[0-9a-f]{4}(:[0-9a-f]{4}){3}", made.text(GUID))
    assert re.fullmatch("ip4-[0-9a-f]{12}:80", made.text(f"{IP4}:80"))
    # An IPoIB address ends in the GUID of its port, and still does.
    guid = made.text("946d:ae03:00ab:cdef").replace(":", "")
    assert made.text(IPOIB).replace(":", "").endswith(guid)
    # One identity in two spellings.
    assert made.text(f"0x{GUID.replace(':', '')}") == "0x" + made.text(GUID).replace(":", "")
    assert made.text(IP6) == made.text("2001:0db8:0077:0:0:0:0:42")
    assert made.text(UUID.upper()) == made.text(UUID).upper()


@pytest.mark.parametrize(
    "secret", [MAC, GUID, IP6, IPOIB, IP4, f"0x{GUID.replace(':', '')}", UUID]
)
@pytest.mark.parametrize(
    "around",
    ["{}", "x {} y", "mac:{}", "node:{}", "bind={}", "[{}]:80", "({}).", "{}.", "{}/64", "{}%eth0",
     "a,{},b", '"{}"', "mlx5_0:{}", "x\n{}\ny", "{}:1", "face {}", "quokka-17:{}"],
)  # fmt: skip
def test_addresses_are_found_whatever_is_around(secret: str, around: str) -> None:
    assert secret not in words(hosts=(HOST,)).text(around.format(secret))


def test_another_key_gives_other_words() -> None:
    assert words().text(f"GPU-{UUID} {MAC}") != words(b"k" * 16).text(f"GPU-{UUID} {MAC}")


@given(st.uuids(), st.uuids())
def test_two_uuids_stay_two(one: object, other: object) -> None:
    made = words()
    assert (made.text(f"GPU-{one}") == made.text(f"GPU-{other}")) == (one == other)


@given(st.text(max_size=300))
def test_any_text_is_replaced_without_error(text: str) -> None:
    words(hosts=(HOST,), users=(USER,)).text(text)


def test_a_long_text_takes_linear_time() -> None:
    made = words(hosts=(HOST,), users=(USER,), serials=(SERIAL,))
    for part in ("a:", "00:", "1.", "a@", "serial", "a", "-", "serial \t", " ", "GPU-0"):
        started = time.monotonic()
        made.text(part * (100_000 // len(part)))
        assert time.monotonic() - started < 5
