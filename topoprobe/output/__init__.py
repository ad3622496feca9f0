"""Faces of a Report: they show it and decide nothing."""
