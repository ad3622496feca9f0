"""The one exception tree of topoprobe.

    TopoprobeError                      exit 1: the input or the node did not allow it
    ├── UsageError                      exit 2: wrong usage
    ├── InputError                      a file or directory handed to us cannot be used
    │   ├── ParseError                  it is text, but not of a kind we read
    │   └── SchemaError                 it is JSON, but no report that this version reads
    └── SourceError                     a source of facts cannot be read
        ├── SourceAbsent                it does not exist here
        └── SourceDenied                no permission

A source that does not answer in time, and a measurement that cannot be taken, raise nothing:
they are results (a source's status, a cell with a reason), so that the rest is kept.

Every message is one line that names the file or device and says what to do.
"""


class TopoprobeError(Exception):
    """Base of all errors that topoprobe raises on purpose; ``str()`` is one line for a person."""

    exit_code = 1


class UsageError(TopoprobeError):
    """The command line asks for something that does not exist or does not fit together."""

    exit_code = 2


class InputError(TopoprobeError):
    """A file or directory that the user named cannot be used."""


class ParseError(InputError):
    """A text was read, and nothing in it can be used; says what the text is instead."""


class SchemaError(InputError):
    """A JSON document is not a report, or is one of a schema that this version cannot read."""


class SourceError(TopoprobeError):
    """A source of facts about the node cannot be read."""


class SourceAbsent(SourceError):
    """The source does not exist on this node or under this root."""


class SourceDenied(SourceError):
    """The source exists and we may not read it."""
