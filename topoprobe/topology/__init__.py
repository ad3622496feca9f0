"""The map: devices, links and paths, built from a Snapshot."""
