"""``python -m topoprobe``."""

import sys

from topoprobe.cli import main

if __name__ == "__main__":
    sys.exit(main())
