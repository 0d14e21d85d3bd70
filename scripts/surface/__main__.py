"""Write a snapshot, or compare one with the checkout as it is: `python -m scripts.surface --help`."""

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from scripts.surface import commands, running, tree
from scripts.surface.text import differences, written

# Each theme gets an empty folder, the home of its child processes.
THEMES: Final[Mapping[str, Callable[[Path], object]]] = {
    "metrics": lambda _: {"scraped": running.part("metrics"), "table": tree.table("metrics.md")},
    "keys": lambda home: {
        "printed": commands.printed_keys(home),
        "table": tree.table("configuration.md"),
        "accepted": commands.accepted_values(home, tree.known_keys()),
    },
    "events": lambda _: {"schema": tree.event_schema(), "seen": running.part("events")},
    "log": lambda _: {"events": tree.log_events(), "seen": running.part("log")},
    "admin": lambda _: {"admin": running.part("admin"), "web": running.part("web")},
    "cli": lambda home: {
        "parsers": commands.parsers(home),
        "exit codes": commands.exit_codes(home),
        "exit codes with a proxy": running.part("commands"),
        "scripts": tree.console_scripts(),
    },
    "helm": lambda _: tree.helm_renders(),
    "transcripts": lambda _: tree.transcripts(),
    "static": lambda _: {"proxy.conf": tree.sample_configuration(), "monitoring": tree.monitoring()},
}


def taken(theme: str) -> str:
    with tempfile.TemporaryDirectory(prefix="surface-") as home:
        return written(THEMES[theme](Path(home)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.surface", description="what a release must not change")
    parser.add_argument("action", choices=("write", "compare"))
    parser.add_argument("directory", type=Path, metavar="DIR", help="one JSON file per theme")
    parser.add_argument("--only", choices=THEMES, action="append", help="this theme only; may be repeated")
    options = parser.parse_args()
    files = {theme: options.directory / f"{theme}.json" for theme in options.only or THEMES}
    if options.action == "write":
        options.directory.mkdir(parents=True, exist_ok=True)
    elif missing := [theme for theme, file in files.items() if not file.is_file()]:
        parser.error(f"{options.directory} has no snapshot of: {', '.join(missing)}")
    changed = []
    # Most of the time goes into waiting for child processes.
    with ThreadPoolExecutor(3) as pool:
        for (theme, file), now in zip(files.items(), pool.map(taken, files), strict=True):
            if options.action == "write":
                file.write_text(now, encoding="utf-8")
            elif found := differences(theme, file.read_text(encoding="utf-8"), now):
                changed.append(theme)
                print(found)
    print(f"changed: {', '.join(changed)}" if changed else f"{len(files)} themes, no difference in {options.directory}")
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main())
