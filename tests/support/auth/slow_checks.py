"""Checks of passwords that take as long as a test wants."""

import threading

import pytest

from proxy.auth.providers.htpasswd import PasswordHash


class SlowChecks:
    """Passwords whose check lasts until it is let go; each equals itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.running = 0
        self.done = 0
        self.let_go = threading.Event()
        self._lock = threading.Lock()
        monkeypatch.setattr(PasswordHash, "matches", lambda _, password: self._check(password))

    def _check(self, password: bytes) -> bool:
        with self._lock:
            self.running += 1
        self.let_go.wait(30)
        with self._lock:
            self.running -= 1
            self.done += 1
        return password == b"sesame"


class CountedChecks:
    """Passwords whose checks are recorded in their order, each of which ends when the test says so.

    The right password of every user is `sesame`; `asked` has the passwords in the order in which threads took them.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[bytes] = []
        self._may_end = threading.Semaphore(0)
        monkeypatch.setattr(PasswordHash, "matches", lambda _, password: self._check(password))

    def _check(self, password: bytes) -> bool:
        self.asked.append(password)
        self._may_end.acquire(timeout=60)
        return password == b"sesame"

    def end(self, number: int = 1) -> None:
        """Let so many checks end, now or when they begin."""
        self._may_end.release(number)
