"""Run the command line: `python -m proxy serve --config proxy.conf`."""

import sys

from proxy.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
