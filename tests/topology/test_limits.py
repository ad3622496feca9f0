"""Ceilings against figures worked out by hand from the PCI Express specification."""

import pytest

from topoprobe.limits.pcie import line_rate, payload_rate


@pytest.mark.parametrize(
    ("generation", "width", "rate"),
    [
        (1, 16, 4.0),  # 2.5 GT/s × 8/10 × 16 / 8
        (2, 16, 8.0),
        (3, 16, 15.753846),  # 8 × 128/130 × 16 / 8
        (4, 16, 31.507692),
        (5, 16, 63.015385),
        (5, 8, 31.507692),
        (6, 16, 121.0),  # 64 × 242/256 × 16 / 8
    ],
)
def test_line_rate(generation: int, width: int, rate: float) -> None:
    assert line_rate(generation, width) == pytest.approx(rate, rel=1e-6)


def test_payload_rate() -> None:
    # 63.015385 × 256/280 and × 128/152
    assert payload_rate(5, 16, 256) == pytest.approx(57.614066, rel=1e-6)
    assert payload_rate(5, 16, 128) == pytest.approx(53.065587, rel=1e-6)
    assert payload_rate(4, 16, 256) == pytest.approx(28.807033, rel=1e-6)


def test_unknown_generation_has_no_rate() -> None:
    assert line_rate(9, 16) is None
    assert payload_rate(9, 16, 256) is None
