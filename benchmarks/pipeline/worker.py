"""The process of one engine: `python -m benchmarks.pipeline.worker MODULE SOURCE OUT`.

The process says `ready`, then for each line on its standard input it makes the tables and says
`took SECONDS`.
"""

from __future__ import annotations

import sys
import time
from importlib import import_module
from pathlib import Path

from benchmarks.pipeline.engine import Engine


def main(module: str, source: str, out: str) -> None:
    engine: Engine = import_module(module).Engine(Path(source), Path(out))
    print("ready", flush=True)
    try:
        for _ in sys.stdin:
            began = time.perf_counter()
            engine.run()
            print(f"took {time.perf_counter() - began:.4f}", flush=True)
    finally:
        engine.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
