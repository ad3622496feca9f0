"""The readers: one module a source. Reading is I/O under a deadline, parsing is pure."""
