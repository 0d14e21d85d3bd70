"""`python -m tests.support.proxies.served`: the command line, with own pages that are made anew for each who asks.

Tests look at metrics right after what they did; the pages' contents are kept for a second otherwise.
"""

import sys

from proxy.cli.main import main
from proxy.web.http import renderings


def run() -> int:
    """Run the command line of this process."""
    renderings.KEEP_SECONDS = 0.0  # type: ignore[misc]
    return main()


if __name__ == "__main__":
    sys.exit(run())
