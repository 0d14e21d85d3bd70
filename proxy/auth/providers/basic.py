"""Clients that present user and password (upstream: AuthenticationProviderBasic).

Rule: checking a password is slow on purpose, so it never runs on the event loop: two threads do it, a bounded line
waits for them, and whoever cannot be served in time is told so. A thread's place is free when the thread is, not when
its client left. What was proven once is known by a keyed digest, so a storm of known clients that reconnect does not
stand behind a storm of guesses. An unknown user costs what a known one does: the time tells nothing.
"""

import asyncio
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from limiter.clock import Clock
from limiter.errors import PermitAcquireError
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from proxy.auth.failures import CredentialsRefused, Reason, SettingFault
from proxy.auth.identity import LONGEST_ROLE, Authenticated
from proxy.auth.providers.htpasswd import LONGEST_PASSWORD_BYTES, PasswordHash, read_htpasswd
from proxy.auth.sources import Watched

CHECKS_AT_ONCE: Final = 2
MOST_WAITING: Final = 1000
LONGEST_WAIT_SECONDS: Final = 10.0
MOST_PROVEN: Final = 4096

Users = Mapping[str, PasswordHash]


class BasicProvider:
    """Verify `user:password` by the users of `basicAuthConf`; raises SettingFault when made."""

    name = "AuthenticationProviderBasic"
    methods = ("basic",)

    def __init__(self, conf: str, clock: Clock) -> None:
        if not conf:
            raise SettingFault("basicAuthConf", "expected a file of htpasswd, or its contents as data:;base64,...")
        self._users = Watched[Users](conf, "basicAuthConf", read_htpasswd)
        self.files: tuple[Watched[Users], ...] = (self._users,)
        self._threads = ThreadPoolExecutor(CHECKS_AT_ONCE, thread_name_prefix="passwords")
        self._line = AsyncSemaphore(
            "passwords", CHECKS_AT_ONCE, max_queue=MOST_WAITING, timeout_seconds=LONGEST_WAIT_SECONDS, clock=clock
        )
        self._proven: OrderedDict[bytes, None] = OrderedDict()
        self._secret = secrets.token_bytes(32)

    def needs_turn(self, data: bytes) -> bool:
        """Tell whether a password has to be checked: one that was proven before waits behind no guess."""
        try:
            user, password = _user_and_password(data)
        except CredentialsRefused:
            return False
        known = self._users.value.get(user)
        return known is None or not self._is_proven(self._proof(user, password, known))

    async def authenticate(self, data: bytes, certificate: bytes | None) -> Authenticated:
        """Check user and password; suspends unless they were proven before. Raises CredentialsRefused."""
        user, password = _user_and_password(data)
        users = self._users.value
        known = users.get(user)
        # Nobody's password, but somebody's cost.
        against = known or next(iter(users.values()))
        proof = self._proof(user, password, against)
        if not (self._is_proven(proof) or await self._matches(against, password, proof)) or known is None:
            raise CredentialsRefused(Reason.INVALID_TOKEN, "basic: unknown user or wrong password")
        self._remember(proof)
        return Authenticated(user)

    async def close(self) -> None:
        """Refuse who waits, and end the threads when their last check is done."""
        self._line.close()
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)

    async def _matches(self, against: PasswordHash, password: bytes, proof: bytes) -> bool:
        try:
            permit = await self._line.acquire(1)
        except PermitAcquireError:
            raise CredentialsRefused(Reason.BUSY, "basic: too many passwords to check, try again") from None
        if self._is_proven(proof):
            # Somebody ahead in the line brought the same.
            permit.release()
            return True
        return await self._check(permit, against, password)

    def _check(self, permit: Permit, against: PasswordHash, password: bytes) -> "asyncio.Future[bool]":
        loop = asyncio.get_running_loop()
        check = self._threads.submit(against.matches, password)
        # Before the permit's: who is next in line shall see what this one has proven.
        matches = asyncio.wrap_future(check)

        def ended(_: object) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(permit.release)

        check.add_done_callback(ended)
        return matches

    def _proof(self, user: str, password: bytes, against: PasswordHash) -> bytes:
        # The hash is part of it: a user whose password was changed is not known any more.
        message = b"\0".join((user.encode(), against.text.encode(), password))
        return hmac.digest(self._secret, message, "sha256")

    def _is_proven(self, proof: bytes) -> bool:
        return proof in self._proven

    def _remember(self, proof: bytes) -> None:
        self._proven[proof] = None
        self._proven.move_to_end(proof)
        if len(self._proven) > MOST_PROVEN:
            self._proven.popitem(last=False)


def _user_and_password(data: bytes) -> tuple[str, bytes]:
    if not data:
        raise CredentialsRefused(Reason.EMPTY_AUTH_DATA, "basic: nothing was sent")
    # Unlike upstream a password may have colons.
    user, colon, password = data.partition(b":")
    if not colon or len(user) > 4 * LONGEST_ROLE or len(password) > LONGEST_PASSWORD_BYTES or b"\0" in data:
        raise CredentialsRefused(Reason.INVALID_AUTH_DATA, "basic: expected user:password")
    try:
        return user.decode(), password
    except UnicodeDecodeError:
        raise CredentialsRefused(Reason.INVALID_AUTH_DATA, "basic: expected a user in UTF-8") from None
