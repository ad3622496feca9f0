"""What the measurements of one run have come to so far.

It grows cell by cell, so that a deadline, a crash or Ctrl-C loses nothing that was finished.
"""

import msgspec

from topoprobe.model.report import (
    Evidence,
    Finding,
    FindingStatus,
    Measurement,
    Severity,
)

_SEVERITY: dict[FindingStatus, Severity] = {
    "pass": "info",
    "skip": "info",
    "warn": "warning",
    "unknown": "warning",
    "fail": "error",
}
_FIGURES = ("time_s", "cv", "algbw_GBps", "busbw_GBps", "verified", "stable")


class Tally:
    """Measurements and findings in the order in which they came."""

    def __init__(self, synthetic: bool = False) -> None:
        self.measurements: list[Measurement] = []
        self._findings: list[Finding] = []
        self._good: dict[str, list[str]] = {}
        self._synthetic = synthetic

    def measurement(self, cell: Measurement) -> None:
        """Add one finished cell."""
        self.measurements.append(msgspec.structs.replace(cell, synthetic=self._synthetic))

    def failed_cell(self, cell: Measurement, reason: str, *, busbw: bool) -> None:
        """Add a cell without figures; `busbw` says whether one would have had a bus bandwidth."""
        names = [name for name in _FIGURES if busbw or name != "busbw_GBps"]
        unknown = dict.fromkeys(names, reason)
        self.measurement(msgspec.structs.replace(cell, n=0, unknown=unknown))

    def finding(
        self,
        id_: str,
        status: FindingStatus,
        message: str,
        subject: tuple[str, ...] = (),
        evidence: tuple[Evidence, ...] = (),
    ) -> None:
        """Add one finding; its severity follows from its status."""
        self._findings.append(
            Finding(
                id=id_,
                status=status,
                severity=_SEVERITY[status],
                message=message,
                subject=subject,
                evidence=evidence,
            )
        )

    def corrupt(self, id_: str, message: str, subject: tuple[str, ...], wrong: int) -> None:
        """Add the finding that data came out wrong; `wrong` counts what differed."""
        self._findings.append(
            Finding(
                id=id_,
                status="fail",
                severity="error",
                message=message,
                subject=subject,
                evidence=(Evidence("wrong", wrong, "data check"),),
                meaning="results computed on this node cannot be trusted",
                remedy="take the node out of use; run a memory test; look for ECC errors",
            )
        )

    def good(self, id_: str, what: str) -> None:
        """Note that `what` was measured and its data checked; one finding will say so of all."""
        self._good.setdefault(id_, []).append(what)

    def findings(self) -> tuple[Finding, ...]:
        """Return all findings, those about what went well at the end."""
        passed = tuple(
            Finding(
                id=id_,
                status="pass",
                severity="info",
                message=f"measured, data verified: {', '.join(names)}",
                # Only devices are subjects; "all_reduce over 2 ranks" is none.
                subject=tuple(name for name in names if name.startswith("numa:")),
            )
            for id_, names in self._good.items()
        )
        return (*self._findings, *passed)
