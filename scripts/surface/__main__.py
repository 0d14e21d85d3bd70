"""Write a snapshot, or compare one with the checkout as it is: `python -m scripts.surface --help`."""

import argparse
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from scripts.surface import commands, running, tree
from scripts.surface.text import differences, written

THEMES: Final[Mapping[str, Callable[[], object]]] = {
    "metrics": lambda: {"scraped": running.part("metrics"), "table": tree.table("metrics.md", without="meaning")},
    "keys": lambda: {
        "printed": commands.printed_keys(),
        "table": tree.table("configuration.md", without="meaning"),
        "accepted": commands.accepted_values(tree.known_keys()),
    },
    "events": lambda: {"schema": tree.event_schema(), "seen": running.part("events")},
    "log": lambda: {"events": tree.log_events(), "seen": running.part("log")},
    "admin": lambda: {"admin": running.part("admin"), "web": running.part("web")},
    "cli": lambda: {
        "parsers": commands.parsers(),
        "exit codes": commands.exit_codes(),
        "exit codes with a proxy": running.part("commands"),
        "scripts": tree.console_scripts(),
    },
    "helm": tree.helm_renders,
    "transcripts": tree.transcripts,
    "static": lambda: {"proxy.conf": tree.sample_configuration(), "monitoring": tree.monitoring()},
}


def taken(themes: list[str]) -> dict[str, str]:
    """Return the text of each theme."""
    # Most of the time goes into waiting for child processes.
    with ThreadPoolExecutor(3) as pool:
        return dict(zip(themes, pool.map(lambda theme: written(THEMES[theme]()), themes), strict=True))


def write(directory: Path, themes: list[str]) -> int:
    directory.mkdir(parents=True, exist_ok=True)
    for theme, text in taken(themes).items():
        (directory / f"{theme}.json").write_text(text, encoding="utf-8")
    print(f"{len(themes)} themes in {directory}")
    return 0


def compare(directory: Path, themes: list[str]) -> int:
    missing = [theme for theme in themes if not (directory / f"{theme}.json").is_file()]
    if missing:
        print(f"error: {directory} has no snapshot of: {', '.join(missing)}", file=sys.stderr)
        return 2
    changed = []
    for theme, now in taken(themes).items():
        before = (directory / f"{theme}.json").read_text(encoding="utf-8")
        if found := differences(theme, before, now):
            changed.append(theme)
            print(found)
    print(f"changed: {', '.join(changed)}" if changed else f"no difference in {len(themes)} themes")
    return 1 if changed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.surface", description="what a release must not change")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    for run in (write, compare):
        action = actions.add_parser(run.__name__)
        action.add_argument("directory", type=Path, metavar="DIR", help="one JSON file per theme")
        action.add_argument("--only", choices=THEMES, action="append", help="this theme only; may be repeated")
        action.set_defaults(run=run)
    options = parser.parse_args()
    code: int = options.run(options.directory, options.only or list(THEMES))
    return code


if __name__ == "__main__":
    raise SystemExit(main())
