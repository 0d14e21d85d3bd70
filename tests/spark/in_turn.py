"""Jobs one after another in one process: each argument is a job with its words; ends with the first that fails.

A JVM that is warm takes half of the time of a new one.
"""

import sys

from pipeline.cli import main

if __name__ == "__main__":
    for job in sys.argv[1:]:
        if code := main(job.split()):
            raise SystemExit(code)
