"""`check-config --connect`: try each configured broker as `serve` would, and say which part fails.

The parts are tried in the order in which they depend on each other: the name, the port of each address, TLS, and for
Pulsar's protocol the answer to CONNECT with the proxy's own credentials. Nothing listens, and nothing is looked up.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Final
from urllib.parse import urlsplit

from protocol.errors import ServerError
from protocol.host_port import host_port
from proxy.app.broker_side import make_broker_side
from proxy.app.identities import make_identities
from proxy.brokers.pool import PoolKey, Purpose
from proxy.brokers.side import BrokerSide
from proxy.brokers.sockets import Sockets
from proxy.brokers.target import BrokerAddress
from proxy.config.config import Config
from proxy.config.core import Core
from proxy.core.counters import Counters
from proxy.core.errors import (
    BrokerUnavailable,
    ConnectionClosed,
    CredentialsUnavailable,
    DisconnectCause,
    ProxyError,
    RequestFailed,
)
from proxy.core.log import open_log
from proxy.core.loop_budget import LoopBudget

_WEB_PORTS: Final = {"http": 80, "https": 443}
# How a handshake ends in which nothing was agreed on; some brokers say nothing.
_NOT_AGREED: Final = ('alert "handshake failure"', 'alert "protocol version"', "the peer ended the connection in it")
_NEEDED: Final = (
    "it needs TLS 1.2 or 1.3, suites of ECDHE with AES-GCM or ChaCha20, a key of RSA, P-256, P-384, P-521 or Ed25519; "
    f"or it wants a certificate ({Config.broker_client_certificate_file_path.name})"
)
_ENDED: Final = f"; it may want another certificate ({Config.broker_client_certificate_file_path.name})"


@dataclass(frozen=True, slots=True)
class Tried:
    """A part of the way to a broker that was tried: what failed, or None, and what was found."""

    key: str
    target: str
    part: str
    found: str
    failed: bool = False

    def __str__(self) -> str:
        return f"{self.key}: {self.target}: {self.part}: {self.found}"

    def document(self) -> dict[str, object]:
        """Return the fields for JSON."""
        return {
            "key": self.key, "target": self.target, "part": self.part, "found": self.found, "ok": not self.failed,
        }  # fmt: skip


def try_brokers(config: Config) -> list[Tried]:
    """Try all brokers and their web services, and return every part that was tried."""
    return asyncio.run(_try_all(config))


async def _try_all(config: Config) -> list[Tried]:
    async with _side_of(config) as side:
        plain, tls = Config.broker_service_url, Config.broker_service_url_tls
        key = (tls if config.tls_enabled_with_broker else plain).name
        tls_on = config.tls_enabled_with_broker
        tries = [_Try(config, side, key, host, port, tls=tls_on) for host, port in config.broker_hosts]
        tries += _web_tries(config, side)
        async with asyncio.TaskGroup() as group:
            for each in tries:
                group.create_task(each.run())
    return [found for each in tries for found in each.found]


def _web_tries(config: Config, side: BrokerSide) -> "Iterator[_Try]":
    plain, tls = Config.broker_web_service_url, Config.broker_web_service_url_tls
    key = tls if config.tls_enabled_with_broker and config.broker_web_service_url_tls else plain
    for url in config.value(key):
        parts = urlsplit(url)
        port = parts.port or _WEB_PORTS[parts.scheme]
        yield _Try(config, side, key.name, parts.hostname or "", port, tls=parts.scheme == "https", web=True)


@asynccontextmanager
async def _side_of(config: Config) -> AsyncIterator[BrokerSide]:
    loop, log = asyncio.get_running_loop(), open_log("error", "json")
    core = Core(loop, config, Counters(), log, LoopBudget(loop, perf_counter))
    sockets, identities = Sockets(core), make_identities(core)
    async with AsyncExitStack() as closing:
        # Transports close their sockets in the next iteration of the loop: the first is called last.
        closing.push_async_callback(asyncio.sleep, 0)
        closing.callback(sockets.close)
        closing.push_async_callback(identities.close)
        side = make_broker_side(core, sockets, identities)
        closing.push_async_callback(side.close)
        yield side


class _Try:
    """Tries the parts of the way to one broker, until one fails."""

    def __init__(
        self, config: Config, side: BrokerSide, key: str, host: str, port: int, *, tls: bool, web: bool = False
    ) -> None:
        self._config = config
        self._side = side
        self._key = key
        self._broker = BrokerAddress(host, port, tls)
        self._web = web
        self.found: list[Tried] = []

    async def run(self) -> None:
        """Try the parts in their order."""
        broker = self._broker
        try:
            addresses = await self._side.brokers.resolve(broker)
        except ProxyError as error:
            self._tell("name", str(error), failed=True)
            return
        self._tell("name", ", ".join(addresses))
        reached = [address for address in addresses if await self._reach(address)]
        if not reached:
            return
        if broker.tls and not await self._secure(reached):
            return
        if not self._web:
            await self._connect()

    async def _reach(self, address: str) -> bool:
        dialer = self._side.request_dialer
        try:
            (await dialer.open(self._broker, [address], dialer.timeout_seconds)).close()
        except BrokerUnavailable as error:
            self._tell("port", f"{address}: {error}", failed=True)
            return False
        self._tell("port", f"{address}: open")
        return True

    async def _secure(self, addresses: Sequence[str]) -> bool:
        if self._web and not self._config.tls_enabled_with_broker:
            self._tell("TLS", f"not tried: {Config.tls_enabled_with_broker.name} is off")
            return True
        secured = False
        for address in addresses:
            try:
                await self._side.request_dialer.look(self._broker, [address])
            except BrokerUnavailable as error:
                hint = f"; {_NEEDED}" if str(error).endswith(_NOT_AGREED) else ""
                self._tell("TLS", f"{address}: {error}{hint}", failed=True)
            else:
                secured = True
                self._tell("TLS", f"{address}: the certificate is accepted")
        return secured

    async def _connect(self) -> None:
        """Send CONNECT with the proxy's own credentials."""
        pool = self._side.pool
        try:
            await pool.connection(PoolKey(self._broker, None, Purpose.LOOKUPS))
        except CredentialsUnavailable as error:
            self._tell("credentials", str(error), failed=True)
        except RequestFailed as error:
            self._refused(error)
        except ProxyError as error:
            ended = isinstance(error, ConnectionClosed) and error.cause is DisconnectCause.TLS_ERROR
            self._tell("protocol", f"{error}{_ENDED if ended else ''}", failed=True)
        else:
            self._tell("credentials", f"the broker accepts them ({_method(self._config)})")

    def _refused(self, error: RequestFailed) -> None:
        config = self._config
        if error.code == ServerError.AuthorizationError and config.authentication_enabled:
            # A role of the broker's proxyRoles may not come without a client's role, which a check does not have.
            self._tell("credentials", f"the broker knows the role, and wants a client's role with it: {error.message}")
        else:
            self._tell("credentials", f"the broker refuses: {error.code}: {error.message}", failed=True)

    def _tell(self, part: str, found: str, *, failed: bool = False) -> None:
        scheme = ("http", "https") if self._web else ("pulsar", "pulsar+ssl")
        target = f"{scheme[self._broker.tls]}://{host_port(self._broker.host, self._broker.port)}"
        self.found.append(Tried(self._key, target, part, found, failed))


def _method(config: Config) -> str:
    plugin = config.broker_client_authentication_plugin
    return plugin.rpartition(".")[2] if plugin else "none are configured"
