"""Rewrite the addresses in the answer to an HTTP lookup, so that the client connects through this proxy.

Clients that look up by HTTP connect directly to the address in the answer, and their CONNECT names no broker
(apache/pulsar #4215, #14349): only the port that they connect to can identify the broker. So each broker has a port of
this proxy, and the answer names that port. The answer for a broker without a port is passed on unchanged.
"""

import json
from typing import Any, Final, NamedTuple

from protocol.host_port import host_port

LARGEST_ANSWER_BYTES: Final = 16 * 1024
_PLAIN: Final = ("brokerUrl", "nativeUrl")
_TLS: Final = ("brokerUrlTls", "brokerUrlSsl")
_WEB: Final = ("httpUrl", "httpUrlTls")


class Lookup(NamedTuple):
    """A lookup's answer: the URL of the broker that it names, and all its fields."""

    broker: str
    fields: dict[str, Any]


def lookup_in(answer: bytes, *, tls_to_brokers: bool) -> Lookup | None:
    """Return what a lookup's answer says, None for any other; `tls_to_brokers`: the proxy uses TLS to brokers."""
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError):
        return None
    broker = found.get(_TLS[0] if tls_to_brokers else _PLAIN[0]) if isinstance(found, dict) else None
    return Lookup(broker, found) if isinstance(broker, str) and broker else None


def rewritten(
    answer: bytes,
    lookup: Lookup,
    host: str,
    ports: tuple[int | None, int | None],
    web_ports: tuple[int | None, int | None],
) -> bytes:
    """Return a lookup's answer with this proxy's addresses, unchanged without a port for its broker.

    `ports` are that for the broker's clients without TLS and that for those with TLS, `web_ports` those of the web
    service; None for a missing port.
    """
    plain, tls = ports
    found = lookup.fields
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
