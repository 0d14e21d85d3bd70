"""Record `pulsar-proxy top` while the demo's storm runs: `python -m benchmarks.top_recording`.

Rule: what is recorded is what a terminal got, in asciicast v2 (docs/images/top.cast: `asciinema play` shows it); the
animated picture beside it, docs/images/top.svg, is drawn from the same bytes. `top` writes whole screens without
colours, so a screen begins where the cursor goes home.
"""

import argparse
import json
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ
from typing import Final
from xml.sax.saxutils import escape

IMAGES: Final = Path(__file__).resolve().parents[1] / "docs" / "images"
COLUMNS, LINES = 104, 30
STORM: Final = ("--connections", "300", "--requests", "4", "--late-seconds", "5")
# Keys of an operator who looks at the queue for a moment: seconds after the start of `top`, and the key.
KEYS: Final = ((3.0, "3"), (4.5, "2"), (6.0, "1"))
LONGEST_SECONDS: Final = 60.0
HOME: Final = "\x1b[H"
CONTROLS: Final = ("\x1b[K", "\x1b[J", "\r", "\x1b[?1049h", "\x1b[?25l", "\x1b[?25h", "\x1b[?1049l")
CHARACTER, LINE = 7.85, 17


@dataclass(frozen=True, slots=True)
class Piece:
    """The output that the terminal got at one moment, in seconds after the start."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Frame:
    """A screen, and how long it stood."""

    lines: tuple[str, ...]
    seconds: float


def frames(pieces: Sequence[Piece], end: float) -> list[Frame]:
    """Return the screens of a recording, each once as long as it did not change."""
    screens: list[tuple[float, tuple[str, ...]]] = []
    text = "".join(piece.text for piece in pieces)
    for begin, screen in _screens(pieces, text):
        if not screens or screens[-1][1] != screen:
            screens.append((begin, screen))
    moments = [begin for begin, _ in screens[1:]] + [end]
    return [Frame(screen, after - begin) for (begin, screen), after in zip(screens, moments, strict=True)]


def _screens(pieces: Sequence[Piece], text: str) -> Iterator[tuple[float, tuple[str, ...]]]:
    starts, length = [], 0
    for piece in pieces:
        starts.append((length, piece.at))
        length += len(piece.text)
    place = text.find(HOME)
    while place >= 0:
        following = text.find(HOME, place + 1)
        shown = text[place + len(HOME) : following if following >= 0 else None]
        for control in CONTROLS:
            shown = shown.replace(control, "")
        yield max(at for start, at in starts if start <= place), tuple(shown.rstrip("\n").split("\n"))
        place = following


def cast(pieces: Sequence[Piece]) -> str:
    """Return the recording in asciicast v2."""
    head = {"version": 2, "width": COLUMNS, "height": LINES, "title": "pulsar-proxy top during a storm"}
    events = [json.dumps([round(piece.at, 3), "o", piece.text]) for piece in pieces]
    return "\n".join([json.dumps(head), *events]) + "\n"


def picture(shown: Sequence[Frame]) -> str:
    """Return an animated SVG of the screens, in a loop; who wants no motion sees the fullest."""
    whole = sum(frame.seconds for frame in shown)
    width, height = round(COLUMNS * CHARACTER) + 32, LINES * LINE + 28
    rules, groups, begin = [], [], 0.0
    fullest = max(range(len(shown)), key=lambda at: sum(line.count("#") for line in shown[at].lines))
    for at, frame in enumerate(shown):
        first, last = 100 * begin / whole, 100 * (begin + frame.seconds) / whole
        begin += frame.seconds
        rules.append(
            f"@keyframes f{at}{{0%,{max(0.0, first - 0.001):.3f}%{{visibility:hidden}}"
            f"{first:.3f}%,{max(first, last - 0.002):.3f}%{{visibility:visible}}"
            f"{min(100.0, last):.3f}%,100%{{visibility:hidden}}}}#f{at}{{animation:f{at} {whole:.2f}s infinite}}"
        )
        lines = "".join(
            f'<text x="16" y="{28 + LINE * number}">{escape(line)}</text>'
            for number, line in enumerate(frame.lines)
            if line.strip()
        )
        groups.append(f'<g id="f{at}">{lines}</g>')
    still = f"@media(prefers-reduced-motion:reduce){{g{{animation:none!important}}#f{fullest}{{visibility:visible}}}}"
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>pulsar-proxy top, recorded during a storm of 300 clients</title>",
        "<style>text{font:13px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#e6edf3;white-space:pre}"
        f"g{{visibility:hidden}}{''.join(rules)}{still}</style>",
        f'<rect width="{width}" height="{height}" rx="10" fill="#0d1117"/>', *groups, "</svg>",
    ]) + "\n"  # fmt: skip


def record(storm: Sequence[str] = STORM) -> tuple[list[Piece], float]:
    """Run the demo with `top` beside it; return what the terminal got, and when it ended."""
    with tempfile.TemporaryDirectory() as folder, _demo(Path(folder, "control.sock"), storm) as (demo, socket):
        _wait_for(socket, demo)
        return _recorded([sys.executable, "-m", "proxy", "top", "--socket", str(socket), "--interval", "0.5"], demo)


@contextmanager
def _demo(socket: Path, storm: Sequence[str]) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    command = [sys.executable, "-m", "proxy", "demo", *storm, "--set", f"controlSocketPath={socket}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as running:
        try:
            yield running, socket
        finally:
            running.terminate()


def _wait_for(socket: Path, demo: "subprocess.Popen[bytes]") -> None:
    ends = time.monotonic() + LONGEST_SECONDS
    while not socket.exists():
        if demo.poll() is not None or time.monotonic() > ends:
            raise RuntimeError("the demo's proxy made no control socket")
        time.sleep(0.02)


def _recorded(command: list[str], demo: "subprocess.Popen[bytes]") -> tuple[list[Piece], float]:
    child, terminal = pty.fork()
    if child == 0:
        os.execvp(command[0], command)
    ioctl(terminal, TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    began = time.monotonic()
    pieces: list[Piece] = []
    keys = list(KEYS)
    with suppress(OSError):
        while demo.poll() is None and (now := time.monotonic() - began) < LONGEST_SECONDS:
            if keys and now >= keys[0][0]:
                os.write(terminal, keys.pop(0)[1].encode())
            if select.select([terminal], [], [], 0.05)[0]:
                text = os.read(terminal, 65536).decode(errors="replace")
                pieces.append(Piece(time.monotonic() - began, text))
    ended = time.monotonic() - began
    os.close(terminal)
    os.waitpid(child, 0)
    return pieces, ended


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.top_recording", description=__doc__)
    parser.add_argument("--to", type=Path, default=IMAGES, metavar="FOLDER", help="(default: %(default)s)")
    options = parser.parse_args()
    pieces, ended = record()
    shown = [frame for frame in frames(pieces, ended) if frame.seconds >= 0.05]
    (options.to / "top.cast").write_text(cast(pieces), encoding="utf-8")
    (options.to / "top.svg").write_text(picture(shown), encoding="utf-8")
    print(f"{len(shown)} screens in {ended:.1f} s: top.cast, top.svg")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
