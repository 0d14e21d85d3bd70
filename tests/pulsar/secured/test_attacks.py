"""Real clients and a real broker with authentication, while strangers guess, flood and announce through the proxy."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from protocol.commands import PING_FRAME
from tests.pulsar.proxy_process import host_and_port
from tests.pulsar.secured.clients import KINDS, authentication, client, exchange, url_for
from tests.pulsar.secured.credentials import Credentials
from tests.pulsar.secured.servers import SecuredBroker, SecuredProxy
from tests.support.clients.wire import ServerRefusedError, WireClient, WireClosedError

pytestmark = pytest.mark.pulsar

ATTACKERS = 12
HOSTILE_VERSION = "\x1b[2J\u202e\r\n{}" * 50

NewProxy = Callable[..., SecuredProxy]


class Attackers:
    """Threads that attack at `url` until they are told to stop; `refused` counts what was told to them."""

    def __init__(self, url: str, target: str) -> None:
        self._at = host_and_port(url)
        self._target = target
        self._over = threading.Event()
        self.refused = 0
        self.let_in = 0
        self._threads = [threading.Thread(target=self._attack, args=(n,), daemon=True) for n in range(ATTACKERS)]

    def _attack(self, number: int) -> None:
        kinds = ("basic", "token", "none", "unknown", "tls")
        while not self._over.is_set():
            with suppress(OSError, WireClosedError), WireClient(*self._at) as wire:
                guess = f"{random.choice(('alice', 'bob', 'nobody'))}:{random.random()}".encode()
                target = {"proxy_to_broker_url": self._target} if number % 2 else {}
                if number % 3 == 2:
                    wire.send_raw(PING_FRAME)
                try:
                    wire.connect(
                        auth_method_name=kinds[number % len(kinds)], auth_data=guess, client_version=HOSTILE_VERSION,
                        original_principal="admin", original_auth_data="admin", **target,
                    )  # fmt: skip
                    self.let_in += 1
                except ServerRefusedError:
                    self.refused += 1

    @contextmanager
    def at_work(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in self._threads:
                thread.join(60)


def test_real_clients_work_while_strangers_attack_and_none_of_them_gets_in(
    secured_proxy: NewProxy, broker: SecuredBroker, credentials: Credentials, namespace: str
) -> None:
    proxy = secured_proxy()
    attackers = Attackers(proxy.url, broker.service_url.removeprefix("pulsar://"))
    with attackers.at_work():
        for kind in KINDS:
            with client(url_for(proxy, kind), credentials, authentication(credentials, kind, "alice")) as alice:
                exchange(alice, f"persistent://{namespace}/{kind}")
    assert attackers.let_in == 0
    assert attackers.refused > 0
