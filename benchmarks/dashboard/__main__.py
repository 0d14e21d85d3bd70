"""Record the scene and draw it: `python -m benchmarks.dashboard`; `--data` keeps or takes the recorded lines."""

import argparse
import json
import sys
from pathlib import Path

from benchmarks.dashboard.draw import png
from benchmarks.dashboard.record import NoPrometheus, record

PICTURE = Path(__file__).resolve().parents[2] / "docs/images/dashboard.png"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dashboard", description=__doc__)
    parser.add_argument("--data", type=Path, metavar="FILE", help="recorded lines: drawn if there, else written")
    parser.add_argument("--to", type=Path, default=PICTURE, metavar="PNG", help="(default: %(default)s)")
    options = parser.parse_args()
    try:
        kept = options.data is not None and options.data.exists()
        recorded = json.loads(options.data.read_text()) if kept else record()
    except NoPrometheus as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.data is not None and not kept:
        options.data.write_text(json.dumps(recorded))
    options.to.write_bytes(png(recorded))
    print(f"{options.to}: {options.to.stat().st_size / 1024:.0f} KiB")
    print("alerts: " + (", ".join(sorted({found["alertname"] for found in recorded["alerts"]})) or "none"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
