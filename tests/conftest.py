"""Hypothesis draws the same examples in every run: a red run can be run again."""

from hypothesis import settings

settings.register_profile("same", derandomize=True)
settings.load_profile("same")
