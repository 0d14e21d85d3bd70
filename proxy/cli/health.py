"""The command `pulsar-proxy health`: whether the proxy of this configuration is ready, for container probes.

Rule: the command requests /readyz, as a load balancer does. A proxy without a web port, or whose port requires client
certificates, is asked over its control socket. The output is one line. The exit code is 0 if the proxy is ready, 1 if
not, 2 if the configuration does not say where the proxy listens. Other faults of the configuration are warnings: a
file broken after the start does not make a serving proxy unready.
"""

import argparse
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

from protocol.host_port import host_port
from proxy.config.config import Config, ConfigError

FAILED: Final = 1
BAD_CONFIG: Final = 2
LARGEST_ANSWER: Final = 8192
_WHERE: Final = (
    Config.bind_address,
    Config.control_socket_path,
    Config.metrics_bind_address,
    Config.metrics_port,
    Config.proxy_role,
    Config.service_port,
    Config.service_port_tls,
    Config.web_bind_address,
    Config.tls_require_trusted_client_cert_on_connect,
    Config.web_service_port,
    Config.web_service_port_tls,
)
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def run_health(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Ask the proxy, print the answer in a line, and return the exit code."""
    try:
        config, faults = Config.load_despite_faults(_WHERE, options.config, environ)
    except ConfigError as error:
        for problem in error.problems:
            print(f"error: {problem}", file=sys.stderr)
        return BAD_CONFIG
    for fault in faults:
        print(f"warning: {fault}", file=sys.stderr)
    obstacle = obstacle_of(config, environ, options.timeout)
    if options.json:
        # Probes run this command often: the module is loaded only where somebody asks for it.
        import json

        print(json.dumps({"ready": obstacle is None, "obstacle": obstacle, "faults": [str(fault) for fault in faults]}))
    else:
        print("ready" if obstacle is None else f"not ready: {obstacle}")
    return 0 if obstacle is None else FAILED


def obstacle_of(config: Config, environ: Mapping[str, str], timeout_seconds: float) -> str | None:
    """Return the reason why the proxy should get no clients now, or None.

    `timeout_seconds` bounds the whole exchange with a port, and each wait on the control socket.
    """
    host = _asked(config.web_addresses)
    if config.web_service_port:
        return _ask_port(host, config.web_service_port, timeout_seconds, encrypted=False)
    if config.metrics_port:
        return _ask_port(_asked(config.metrics_addresses), config.metrics_port, timeout_seconds, encrypted=False)
    if config.web_service_port_tls and not config.tls_require_trusted_client_cert_on_connect:
        return _ask_port(host, config.web_service_port_tls, timeout_seconds, encrypted=True)
    return _ask_socket(config, environ, timeout_seconds)


def _asked(addresses: Sequence[str]) -> str:
    return _EVERYWHERE.get(addresses[0], addresses[0])


def _ask_port(host: str, port: int, timeout_seconds: float, *, encrypted: bool) -> str | None:
    try:
        status, reason = _get(host, port, time.monotonic() + timeout_seconds, encrypted=encrypted)
    except OSError as error:
        return f"{host_port(host, port)}: {(error.strerror or str(error)).lower()}"
    except ValueError as error:
        return f"{host_port(host, port)}: {error}"
    return None if status == 200 else reason or f"status {status}"


def _get(host: str, port: int, deadline: float, *, encrypted: bool) -> tuple[int, str]:
    # http.client would restart its time-out with each byte.
    plain = socket.create_connection((host, port), _seconds_left(deadline))
    with plain, _wrapped(plain) if encrypted else plain as asking:
        asking.sendall(f"GET /readyz HTTP/1.1\r\nHost: {host_port(host, port)}\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while len(answer) < LARGEST_ANSWER:
            asking.settimeout(_seconds_left(deadline))
            piece = asking.recv(4096)
            if not piece:
                break
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise ValueError(f"got {answer[:40]!r}, expected an HTTP response: is it a web port (webServicePort)?")
    return int(words[1]), body.decode("utf-8", "replace").strip().partition("\n")[0][:200]


def _wrapped(plain: socket.socket) -> socket.socket:
    import ssl

    # No certificate names this address. The proxy is on this machine, and the request has no secret.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(plain)


def _seconds_left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("no answer in time")
    return left


def _ask_socket(config: Config, environ: Mapping[str, str], timeout_seconds: float) -> str | None:
    from proxy.app.lifecycle import DeploymentRole, Phase
    from proxy.cli.admin.client import NoAnswer, ask_top
    from proxy.web.admin.control_socket import control_paths

    try:
        # The time bounds each wait only: the server of the user's own socket is trusted not to send byte by byte.
        paths = list(control_paths(config.control_socket_path, config.client_port, environ))
        document = ask_top(paths, timeout_seconds)
    except NoAnswer as error:
        return str(error)
    state = document["proxy"]["state"]
    ready = state == Phase.SERVING or (state == Phase.LEAVING and config.proxy_role == DeploymentRole.SIDECAR)
    return None if ready else str(state)
