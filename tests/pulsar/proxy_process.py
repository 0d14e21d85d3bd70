"""Owns the proxy as a separate process in front of a broker: its proxy.conf, its readiness, its clean end.

Obeys one rule: an exit code other than 0 after SIGTERM is a failure. Starts the proxy as a user does, by its
command line.
"""

import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.pulsar.process import ChildProcess, ProcessFailedError
from tests.pulsar.standalone import Broker
from tests.support.clients.wire import ServerRefusedError, WireClient, WireError
from tests.support.patience import patient
from tests.support.sockets.ports import free_ports

COMMAND: Final = (sys.executable, "-m", "tests.support.proxies.served")
_ROOT: Final = Path(__file__).parent.parent.parent
_READY_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 30.0
_PORTS: Final = ("servicePort", "webServicePort")


@dataclass(frozen=True, slots=True)
class Proxy:
    """Say where the proxy listens, which process it is, and its proxy.conf."""

    service_url: str
    web_url: str
    process: ChildProcess
    config: Path

    @property
    def keys(self) -> dict[str, str]:
        """Return the keys of proxy.conf, which another start of this proxy takes."""
        return dict(line.split("=", 1) for line in self.config.read_text().splitlines())

    def reload(self, keys: Mapping[str, str]) -> None:
        """Add keys to proxy.conf and have it read again; a key that stands there twice has its last value."""
        with self.config.open("a") as config:
            config.writelines(f"{key}={value}\n" for key, value in keys.items())
        os.kill(self.process.pid, signal.SIGHUP)


def host_and_port(service_url: str) -> tuple[str, int]:
    """Split pulsar://host:port."""
    host, _, port = service_url.removeprefix("pulsar://").rpartition(":")
    return host, int(port)


@contextmanager
def connected(service_url: str, timeout: float = 60.0, /, **fields: Any) -> Iterator[WireClient]:
    """Give a wire client after CONNECTED; `fields` are those of CONNECT."""
    with WireClient(*host_and_port(service_url), timeout=timeout) as client:
        client.connect(**fields)
        yield client


def answers(service_url: str) -> bool:
    """Tell whether a proxy at `service_url` answers CONNECT, be it with a refusal."""
    try:
        with connected(service_url, 5.0):
            return True
    except ServerRefusedError:
        return True
    except (OSError, WireError):
        return False


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), patient(5)).close()
    except OSError:
        return False
    return True


def start_proxy(
    directory: Path,
    broker: Broker,
    overrides: Mapping[str, str] | None = None,
    command: Sequence[str] = COMMAND,
    options: Sequence[str] = (),
) -> Proxy:
    """Start a proxy that its caller ends, and wait until it serves; raises ProcessFailedError.

    `command` may be a program around the proxy's command line, `options` are more of `serve`.
    """
    given = overrides or {}
    free = free_ports(2)
    service_port, web_port = (int(given.get(key, port)) for key, port in zip(_PORTS, free, strict=True))
    keys = {
        "servicePort": str(service_port),
        "webServicePort": str(web_port),
        "bindAddress": "127.0.0.1",
        "clusterName": "standalone",
        "brokerServiceURL": broker.service_url,
        "brokerWebServiceURL": broker.admin_url,
        "brokerProxyAllowedTargetPorts": "*",
        # Clients stay connected while a test ends or restarts a proxy, and relays would be waited for.
        "shutdownPreDrainMillis": "0",
        "shutdownDrainMillis": "500",
        **given,
    }
    config = directory / f"proxy-{service_port}.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    arguments = [*command, "serve", "--config", str(config), *options]
    process = ChildProcess("proxy", arguments, config.with_suffix(".log"), {"PYTHONPATH": str(_ROOT)})
    proxy = Proxy(f"pulsar://127.0.0.1:{service_port}", f"http://127.0.0.1:{web_port}", process, config)
    try:
        # The web port comes a moment behind the other.
        process.wait_ready(lambda: answers(proxy.service_url) and _listens(web_port), _READY_SECONDS)
    except BaseException:
        process.stop(_STOP_SECONDS)
        raise
    return proxy


def stop_proxy(proxy: Proxy) -> None:
    """End a proxy by SIGTERM; raises ProcessFailedError for an exit code other than 0."""
    code = proxy.process.stop(_STOP_SECONDS)
    if code != 0:
        raise ProcessFailedError(f"proxy ended with code {code} after SIGTERM, expected 0\n{proxy.process.tail()}")


@contextmanager
def run_proxy(
    directory: Path, broker: Broker, overrides: Mapping[str, str] | None = None, command: Sequence[str] = COMMAND
) -> Iterator[Proxy]:
    """Run the proxy until the block ends; raises ProcessFailedError, also for an unclean end."""
    proxy = start_proxy(directory, broker, overrides, command)
    try:
        yield proxy
        proxy.process.ensure_running()
    except BaseException:
        proxy.process.stop(_STOP_SECONDS)
        raise
    stop_proxy(proxy)
