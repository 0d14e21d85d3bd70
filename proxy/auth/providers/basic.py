"""Clients with user and password (upstream: AuthenticationProviderBasic).

Rule: checking a password is slow on purpose, so the check never runs on the event loop. A pool of two threads does all
checks, with a bounded queue; a client that cannot be served in time gets a busy error. A thread's permit is released
when the thread is done, also if its client left earlier. Proven passwords are remembered as keyed digests, so a storm
of known clients that reconnect does not queue after a storm of guesses. An unknown user takes as long as a known user,
so the time of the answer reveals nothing.
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
from proxy.auth.identity import Authenticated
from proxy.auth.providers.htpasswd import LONGEST_PASSWORD_BYTES, PasswordHash, read_htpasswd
from proxy.auth.roles import LONGEST_ROLE
from proxy.auth.sources import Watched

CHECKS_AT_ONCE: Final = 2
MOST_WAITING: Final = 1000
LONGEST_WAIT_SECONDS: Final = 10.0
MOST_PROVEN: Final = 4096

Users = Mapping[str, PasswordHash]


class BasicProvider:
    """Verifies `user:password` by the users of `basicAuthConf`; the constructor raises SettingFault."""

    name = "AuthenticationProviderBasic"
    methods = ("basic",)

    def __init__(self, conf: str, clock: Clock) -> None:
        if not conf:
            raise SettingFault("basicAuthConf", "expected a file of htpasswd, or its contents as data:;base64,...")
        self._users = Watched[Users](conf, "basicAuthConf", read_htpasswd)
        self.files: tuple[Watched[Users], ...] = (self._users,)
        self._threads = ThreadPoolExecutor(CHECKS_AT_ONCE, thread_name_prefix="passwords")
        self._queue = AsyncSemaphore(
            "passwords", CHECKS_AT_ONCE, max_queue=MOST_WAITING, timeout_seconds=LONGEST_WAIT_SECONDS, clock=clock
        )
        self._proven: OrderedDict[bytes, None] = OrderedDict()
        self._secret = secrets.token_bytes(32)

    def needs_turn(self, data: bytes) -> bool:
        """Return whether the password was not proven before, so that a thread has to check it."""
        try:
            user, password = _user_and_password(data)
        except CredentialsRefused:
            return False
        known = self._users.value.get(user)
        return known is None or not self._is_proven(self._proof(user, password, known))

    async def authenticate(self, data: bytes, certificate: bytes | None) -> Authenticated:
        """Check user and password; suspend unless they were proven before. Raise CredentialsRefused."""
        user, password = _user_and_password(data)
        users = self._users.value
        known = users.get(user)
        # For an unknown user check another user's hash, only to take as long as for a known user.
        against = known or next(iter(users.values()))
        proof = self._proof(user, password, against)
        if not (self._is_proven(proof) or await self._matches(against, password, proof)) or known is None:
            raise CredentialsRefused(Reason.INVALID_TOKEN, "basic: unknown user or wrong password")
        self._remember(proof)
        return Authenticated(user)

    async def close(self) -> None:
        """Refuse the checks that wait, and end the threads after their last check."""
        self._queue.close()
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)

    async def _matches(self, against: PasswordHash, password: bytes, proof: bytes) -> bool:
        try:
            permit = await self._queue.acquire(1)
        except PermitAcquireError:
            raise CredentialsRefused(Reason.BUSY, "basic: too many passwords to check, try again") from None
        if self._is_proven(proof):
            # An earlier check in the queue has proven the same password.
            permit.release()
            return True
        return await self._check(permit, against, password)

    def _check(self, permit: Permit, against: PasswordHash, password: bytes) -> "asyncio.Future[bool]":
        loop = asyncio.get_running_loop()
        check = self._threads.submit(against.matches, password)
        # Set the result before releasing the permit: the next check in the queue must see a proven password.
        matches = asyncio.wrap_future(check)

        def ended(_: object) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(permit.release)

        check.add_done_callback(ended)
        return matches

    def _proof(self, user: str, password: bytes, against: PasswordHash) -> bytes:
        # The digest covers the hash, so a changed password forgets the old proof.
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
    # Unlike in upstream, a password may contain colons.
    user, colon, password = data.partition(b":")
    if not colon or len(user) > 4 * LONGEST_ROLE or len(password) > LONGEST_PASSWORD_BYTES or b"\0" in data:
        raise CredentialsRefused(Reason.INVALID_AUTH_DATA, "basic: expected user:password")
    try:
        return user.decode(), password
    except UnicodeDecodeError:
        raise CredentialsRefused(Reason.INVALID_AUTH_DATA, "basic: expected a user in UTF-8") from None
