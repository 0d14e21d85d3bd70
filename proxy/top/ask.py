"""Ask a running proxy for a document, or to change something, over its control socket."""

import json
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from proxy.control import VERSION

PATIENCE_SECONDS: Final = 5.0
_KEY: Final = "controlSocketPath"


class NoAnswer(Exception):
    """No proxy answers; the text says which paths were tried and which key leads to another."""


class Refused(Exception):
    """A proxy answers, but not with what it was asked for; the text is the proxy's."""


def ask_top(paths: Sequence[Path]) -> Mapping[str, Any]:
    """Give the document of `pulsar-proxy top` of the first of `paths` that a proxy listens on; raises NoAnswer."""
    try:
        return ask(paths, {"show": "top"}, "top")
    except Refused as error:
        raise NoAnswer(str(error)) from error


def ask(paths: Sequence[Path], request: Mapping[str, object], name: str) -> Mapping[str, Any]:
    """Give what the first of `paths` that a proxy listens on has for `request`; raises NoAnswer or Refused."""
    problems = []
    for path in paths:
        try:
            return _document(_exchange(path, request), name)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            problems.append(f"{path} ({reason.lower()})")
    tried = ", ".join(problems) if problems else "none: the configuration turns the socket off"
    raise NoAnswer(f"no proxy answers; tried: {tried}; see {_KEY}, or give --socket")


def _exchange(path: Path, request: Mapping[str, object]) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(PATIENCE_SECONDS)
        asking.connect(os.fspath(path))
        pieces = []
        # Who is turned away is told why at once; what it still sends then finds nobody.
        with suppress(BrokenPipeError):
            asking.sendall(json.dumps(request).encode() + b"\n")
        with suppress(ConnectionResetError):
            while piece := asking.recv(65536):
                pieces.append(piece)
    return b"".join(pieces)


def _document(answer: bytes, name: str) -> Mapping[str, Any]:
    if not answer.endswith(b"\n"):
        raise ValueError("it ended the connection without an answer: it is stopping, or too slow")
    read = json.loads(answer)
    if not isinstance(read, dict) or read.get("version") != VERSION:
        raise ValueError(f"it speaks another version, expected {VERSION}")
    if not isinstance(read.get(name), dict):
        raise Refused(f"it answers {str(read.get('error'))!r}")
    return dict(read[name])
