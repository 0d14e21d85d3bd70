"""Clients with user and password (upstream: AuthenticationProviderBasic).

Rule: checking a password is slow on purpose, so the check never runs on the event loop. A pool of threads does all
checks, with a bounded queue; a client that cannot be served in time gets a busy error. A thread's permit is released
when the thread is done, also if its client left earlier. Proven passwords are remembered as keyed digests, so a storm
of known clients that reconnect does not wait for a turn (`proxy.auth.check_turns`). Wrong passwords are remembered
likewise, so clients that repeat an old password cost nothing and delay nobody.

The time of an answer reveals no user: every wrong guess costs one check of each kind and cost of hash in the file,
whether its user exists or not, and whichever hash the user has.
"""

import asyncio
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Self

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
MOST_WRONG: Final = 4096


@dataclass(frozen=True, slots=True)
class Users:
    """The users of a file, and one hash of each cost, for the checks that reveal no user by their time."""

    hashes: Mapping[str, PasswordHash]
    costs: Mapping[str, PasswordHash]

    @classmethod
    def read(cls, content: bytes) -> Self:
        """Return the users of an htpasswd file; raise ValueError that names the line."""
        hashes = read_htpasswd(content)
        return cls(hashes, {known.cost: known for known in hashes.values()})

    def others(self, known: PasswordHash | None) -> Sequence[PasswordHash]:
        """Return a hash of each cost but that of `known`."""
        return [one for cost, one in self.costs.items() if known is None or cost != known.cost]


class BasicProvider:
    """Verifies `user:password` by the users of `basicAuthConf`, in `at_once` threads.

    The constructor raises SettingFault.
    """

    name = "AuthenticationProviderBasic"
    methods = ("basic",)

    def __init__(self, conf: str, clock: Clock, at_once: int = CHECKS_AT_ONCE) -> None:
        if not conf:
            raise SettingFault("basicAuthConf", "expected a file of htpasswd, or its contents as data:;base64,...")
        self._users = Watched[Users](conf, "basicAuthConf", Users.read)
        self.files: tuple[Watched[Users], ...] = (self._users,)
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="passwords")
        self._queue = AsyncSemaphore(
            "passwords", at_once, max_queue=MOST_WAITING, timeout_seconds=LONGEST_WAIT_SECONDS, clock=clock
        )
        self._proven: OrderedDict[bytes, None] = OrderedDict()
        self._wrong: OrderedDict[bytes, None] = OrderedDict()
        self._secret = secrets.token_bytes(32)

    def user_to_check(self, data: bytes) -> str | None:
        """Return the user unless the password was proven, or found wrong, before."""
        try:
            user, password = _user_and_password(data)
        except CredentialsRefused:
            return None
        proof = self._proof(user, password, self._users.value.hashes.get(user))
        return None if proof in self._proven or proof in self._wrong else user

    async def authenticate(self, data: bytes, certificate: bytes | None, network: str) -> Authenticated:
        """Check user and password; suspend unless they were checked before. Raise CredentialsRefused."""
        user, password = _user_and_password(data)
        users = self._users.value
        known = users.hashes.get(user)
        proof = self._proof(user, password, known)
        if proof in self._proven:
            self._proven.move_to_end(proof)
        elif proof in self._wrong or not await self._matches(users, known, password, proof):
            _remember(self._wrong, proof, MOST_WRONG)
            raise CredentialsRefused(Reason.INVALID_TOKEN, "basic: unknown user or wrong password")
        else:
            _remember(self._proven, proof, MOST_PROVEN)
        return Authenticated(user)

    async def close(self) -> None:
        """Refuse the checks that wait, and end the threads after their last check."""
        self._queue.close()
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)

    async def _matches(self, users: Users, known: PasswordHash | None, password: bytes, proof: bytes) -> bool:
        try:
            permit = await self._queue.acquire(1)
        except PermitAcquireError:
            raise CredentialsRefused(Reason.BUSY, "basic: too many passwords to check, try again") from None
        if proof in self._proven or proof in self._wrong:
            # An earlier check in the queue was of the same password.
            permit.release()
            return proof in self._proven
        return await self._check(permit, known, users.others(known), password)

    def _check(
        self, permit: Permit, known: PasswordHash | None, others: Sequence[PasswordHash], password: bytes
    ) -> "asyncio.Future[bool]":
        loop = asyncio.get_running_loop()
        try:
            check = self._threads.submit(_check_all, known, others, password)
        except RuntimeError:
            # No thread can be started now (RLIMIT_NPROC, pids.max, memory): the next check needs the permit.
            permit.release()
            raise CredentialsRefused(Reason.BUSY, "basic: no thread to check a password, try again") from None
        # Set the result before releasing the permit: the next check in the queue must see a proven password.
        matches = asyncio.wrap_future(check)

        def ended(_: object) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(permit.release)

        check.add_done_callback(ended)
        return matches

    def _proof(self, user: str, password: bytes, known: PasswordHash | None) -> bytes:
        # The digest covers the hash, so a changed password forgets the old proof; no hash is empty.
        text = "" if known is None else known.text
        message = b"\0".join((user.encode(), text.encode(), password))
        return hmac.digest(self._secret, message, "sha256")


def _check_all(known: PasswordHash | None, others: Sequence[PasswordHash], password: bytes) -> bool:
    """Return whether the password is right; if not, do the work of all `others`, too, and ignore what they say."""
    if known is not None and known.matches(password):
        return True
    for other in others:
        other.matches(password)
    return False


def _remember(proofs: "OrderedDict[bytes, None]", proof: bytes, most: int) -> None:
    proofs[proof] = None
    proofs.move_to_end(proof)
    if len(proofs) > most:
        proofs.popitem(last=False)


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
