"""Write the addresses in the answer to an HTTP lookup anew, so that its client comes back through this proxy.

Clients that look up by HTTP connect straight to the address they are told, and their CONNECT names no broker
(apache/pulsar #4215, #14349): only the port they come to can say which one is meant. So each broker has a port of this
proxy, and the answer names it. A broker without one is passed on as it is.
"""

import json
from collections.abc import Callable
from typing import Final

from protocol.host_port import host_port

LARGEST_ANSWER_BYTES: Final = 16 * 1024
_PLAIN: Final = ("brokerUrl", "nativeUrl")
_TLS: Final = ("brokerUrlTls", "brokerUrlSsl")
_WEB: Final = ("httpUrl", "httpUrlTls")

PortOf = Callable[[str, bool], int | None]


def rewritten(
    answer: bytes,
    host: str,
    port_of: PortOf,
    web_ports: tuple[int | None, int | None],
    *,
    tls_to_brokers: bool = False,
) -> bytes:
    """Give the answer with this proxy's addresses; one that is no lookup's answer is given back as it came.

    `port_of` gives the port for a broker's URL, and for clients with TLS or without; `web_ports` are the plain and the
    TLS port of this proxy, None for one it does not have. `tls_to_brokers`: which of a broker's URLs we connect to.
    """
    try:
        found = json.loads(answer)
    except ValueError:
        return answer
    if not isinstance(found, dict):
        return answer
    broker = found.get(_TLS[0] if tls_to_brokers else _PLAIN[0])
    if not isinstance(broker, str) or not broker:
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
    return json.dumps(found, separators=(",", ":")).encode()


def host_of(header: str) -> str:
    """Give the host out of a `Host` header, without its port; empty for one that is none."""
    host = header.rpartition("]")[0][1:] if header.startswith("[") else header.partition(":")[0]
    return host if host and all(sign.isalnum() or sign in "-._:" for sign in host) and host.isascii() else ""
