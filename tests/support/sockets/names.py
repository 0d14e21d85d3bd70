"""Stand in for the system's resolver: names that end in .test have the addresses that a test says."""

import socket
import threading
from typing import Any

import pytest


class SystemNames:
    """Names in .test have their `own` addresses or `addresses`, or fail with `error`.

    Those that begin with `hanging` wait for `released`.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.own: dict[str, list[str]] = {}
        self.error: OSError | None = None
        self.asked: list[str] = []
        self.released = threading.Event()
        systems = socket.getaddrinfo

        def getaddrinfo(host: Any, *rest: Any, **more: Any) -> Any:
            return self._answer(host) if str(host).endswith(".test") else systems(host, *rest, **more)

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    def _answer(self, name: str) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        self.asked.append(name)
        if name.startswith("hanging"):
            self.released.wait(60)
        if self.error is not None:
            raise self.error
        addresses = self.own.get(name, self.addresses)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]
