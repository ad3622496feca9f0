"""Measurements: what is run, in which processes, and what the times of it come to.

``quick`` is the way in. Nothing here is imported with torch: that happens in the rank
processes alone, so a report without measurements never pays for it.
"""
