"""An explained word. Each text lives beside what it explains; `explain` collects them."""

from msgspec import Struct


class Term(Struct, frozen=True):
    """`name` as the user types it, `title` in a few words, `text` in short paragraphs."""

    name: str
    title: str
    text: str
    see: tuple[str, ...] = ()
