"""Findings: small functions in a registry that judge a Topology and its sources."""
