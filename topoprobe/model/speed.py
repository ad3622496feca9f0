"""State and speed of a link: what the records of sources and the map both speak of."""

from typing import Literal

from msgspec import Struct

LinkState = Literal["up", "down", "sleep", "unknown"]


class LinkSpeed(Struct, frozen=True):
    """Generation and width (lanes) of a link or of one of its ends; None where unknown."""

    generation: int | None = None
    width: int | None = None
