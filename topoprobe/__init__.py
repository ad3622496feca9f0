"""topoprobe: inspect, measure and judge the interconnect of a GPU node.

This module stays empty but for the version: every command starts here, and
``topoprobe --version`` must cost hardly more than the interpreter itself.
"""

__version__ = "0.1.0"
