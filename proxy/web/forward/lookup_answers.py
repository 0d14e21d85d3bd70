"""Rewrite the addresses in the answer to an HTTP lookup, so that the client connects through this proxy.

Clients that look up by HTTP connect directly to the address in the answer, and their CONNECT names no broker
(apache/pulsar #4215, #14349): only the port that they connect to can identify the broker. So each broker has a port of
this proxy, and the answer names that port. The answer for a broker without a port is passed on unchanged.
"""

import json
from collections.abc import Callable
from typing import Any, Final

from protocol.host_port import host_port

LARGEST_ANSWER_BYTES: Final = 16 * 1024
_PLAIN: Final = ("brokerUrl", "nativeUrl")
_TLS: Final = ("brokerUrlTls", "brokerUrlSsl")
_WEB: Final = ("httpUrl", "httpUrlTls")

PortOf = Callable[[str, bool], int | None]


def broker_of(answer: bytes, *, tls_to_brokers: bool = False) -> str | None:
    """Return the URL of the broker that a lookup's answer names; None for any other answer."""
    return _parsed(answer, tls_to_brokers)[0]


def _parsed(answer: bytes, tls_to_brokers: bool) -> tuple[str | None, dict[str, Any]]:
    """Return the broker's URL and all fields of a lookup's answer; no URL for any other answer."""
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError):
        return None, {}
    if not isinstance(found, dict):
        return None, {}
    broker = found.get(_TLS[0] if tls_to_brokers else _PLAIN[0])
    return (broker, found) if isinstance(broker, str) and broker else (None, found)


def rewritten(
    answer: bytes,
    host: str,
    port_of: PortOf,
    web_ports: tuple[int | None, int | None],
    *,
    tls_to_brokers: bool = False,
) -> bytes:
    """Return the answer with this proxy's addresses; any answer that is not a lookup's is returned unchanged.

    `port_of` returns the port for a broker's URL and for clients with or without TLS. `web_ports` are the plain and the
    TLS port of this proxy, None for a missing port. `tls_to_brokers`: whether the proxy connects to brokers with TLS.
    """
    broker, found = _parsed(answer, tls_to_brokers)
    if broker is None:
        return answer
    plain, tls = port_of(broker, False), port_of(broker, True)
    if plain is None and tls is None:
        return answer
    if plain is not None:
        found |= dict.fromkeys(_PLAIN, f"pulsar://{host_port(host, plain)}")
    if tls is not None:
        found |= dict.fromkeys(_TLS, f"pulsar+ssl://{host_port(host, tls)}")
    for name, scheme, web_port in zip(_WEB, ("http", "https"), web_ports, strict=True):
        if found.get(name) and web_port is not None:
            found[name] = f"{scheme}://{host_port(host, web_port)}"
    try:
        return json.dumps(found, separators=(",", ":")).encode()
    except RecursionError:
        # An answer that could just be read may be too deep to be written.
        return answer
