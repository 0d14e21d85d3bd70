"""The command `pulsar-proxy health`: whether the proxy of this configuration is ready, for whoever runs containers.

Rule: it asks what a balancer asks, /readyz; a proxy without such a port, or whose port wants certificates of clients,
is asked over its control socket. One line, exit code 0 when it is ready, 1 when not, 2 if the configuration does not
say where it is. Any other fault is a warning: a file that was broken since makes no proxy unready that serves.
"""

import argparse
import socket
import sys
import time
from collections.abc import Mapping
from typing import Final

from protocol.host_port import host_port
from proxy.config.config import Config, ConfigError

FAILED: Final = 1
BAD_CONFIG: Final = 2
LARGEST_ANSWER: Final = 8192
_WHERE: Final = (
    Config.bind_address,
    Config.control_socket_path,
    Config.proxy_role,
    Config.service_port,
    Config.service_port_tls,
    Config.tls_require_trusted_client_cert_on_connect,
    Config.web_service_port,
    Config.web_service_port_tls,
)
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def run_health(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Ask, print the answer in a line, and give the exit code."""
    try:
        config, faults = Config.load_despite_faults(_WHERE, options.config, environ)
    except ConfigError as error:
        for problem in error.problems:
            print(f"error: {problem}", file=sys.stderr)
        return BAD_CONFIG
    for fault in faults:
        print(f"warning: {fault}", file=sys.stderr)
    obstacle = obstacle_of(config, environ, options.timeout)
    print("ready" if obstacle is None else f"not ready: {obstacle}")
    return 0 if obstacle is None else FAILED


def obstacle_of(config: Config, environ: Mapping[str, str], timeout_seconds: float) -> str | None:
    """Say why the proxy should get no clients now; None if it should. A port has that time, a socket for each wait."""
    host = _EVERYWHERE.get(config.bind_address, config.bind_address)
    if config.web_service_port:
        return _asked(host, config.web_service_port, timeout_seconds, encrypted=False)
    if config.web_service_port_tls and not config.tls_require_trusted_client_cert_on_connect:
        return _asked(host, config.web_service_port_tls, timeout_seconds, encrypted=True)
    return _asked_by_socket(config, environ, timeout_seconds)


def _asked(host: str, port: int, timeout_seconds: float, *, encrypted: bool) -> str | None:
    try:
        status, said = _get(host, port, time.monotonic() + timeout_seconds, encrypted=encrypted)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        return f"{host_port(host, port)}: {reason.lower()}"
    return None if status == 200 else said or f"status {status}"


def _get(host: str, port: int, deadline: float, *, encrypted: bool) -> tuple[int, str]:
    # Not http.client: its time-out begins anew with each byte.
    plain = socket.create_connection((host, port), _left(deadline))
    with plain, _wrapped(plain) if encrypted else plain as asking:
        asking.sendall(f"GET /readyz HTTP/1.1\r\nHost: {host_port(host, port)}\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while len(answer) < LARGEST_ANSWER:
            asking.settimeout(_left(deadline))
            piece = asking.recv(4096)
            if not piece:
                break
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise ValueError(f"got {answer[:40]!r}, expected an answer of HTTP: is it a web port (webServicePort)?")
    return int(words[1]), body.decode("utf-8", "replace").strip().partition("\n")[0][:200]


def _wrapped(plain: socket.socket) -> socket.socket:
    import ssl

    # It is asked by its address, for which no certificate is made, and on this machine; nothing secret is sent.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(plain)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("no answer in time")
    return left


def _asked_by_socket(config: Config, environ: Mapping[str, str], timeout_seconds: float) -> str | None:
    from proxy.app.lifecycle import DeploymentRole, Phase
    from proxy.cli.admin.client import NoAnswer, ask_top
    from proxy.web.admin.control_socket import control_paths

    try:
        # The time is for each wait: whoever serves the user's own socket does not drip.
        paths = list(control_paths(config.control_socket_path, config.client_port, environ))
        document = ask_top(paths, timeout_seconds)
    except NoAnswer as error:
        return str(error)
    state = document["proxy"]["state"]
    ready = state == Phase.SERVING or (state == Phase.LEAVING and config.proxy_role == DeploymentRole.SIDECAR)
    return None if ready else str(state)
