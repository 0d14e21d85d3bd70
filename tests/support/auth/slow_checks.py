"""Checks of passwords that take as long as a test wants."""

import threading

import pytest

from proxy.auth.providers.htpasswd import PasswordHash


class HeldChecks:
    """Passwords whose checks last until the test ends them; the right one of every user is `sesame`.

    `asked` has the passwords in the order in which threads took them.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[bytes] = []
        self.done = 0
        self._may_end = threading.Semaphore(0)
        monkeypatch.setattr(PasswordHash, "matches", lambda _, password: self._check(password))

    def _check(self, password: bytes) -> bool:
        self.asked.append(password)
        self._may_end.acquire(timeout=60)
        self.done += 1
        return password == b"sesame"

    @property
    def running(self) -> int:
        return len(self.asked) - self.done

    def end(self, number: int = 1000) -> None:
        """Let so many checks end, now or when they begin."""
        self._may_end.release(number)
