"""Build the Topology of a Snapshot, from whichever sources it holds."""

from topoprobe.model.snapshot import Snapshot
from topoprobe.model.topology import Topology
from topoprobe.topology.from_sysfs import topology_from_sysfs
from topoprobe.topology.from_text import topology_from_text


def build(snapshot: Snapshot) -> Topology:
    """Return the map of `snapshot`; an empty one where no source could be read."""
    if snapshot.sysfs is not None:
        return topology_from_sysfs(snapshot.sysfs)
    if snapshot.topo_matrix is not None:
        return topology_from_text(snapshot.topo_matrix)
    return Topology()
