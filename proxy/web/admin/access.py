"""The authorization of the admin API: a client must open the control socket, or know the token at `adminApiAddress`.

Rule: every route needs one of these two. A web page can open no Unix socket, and a browser adds no Authorization header
to a page's request unless the page knows the token. A request that names a web page as its origin is refused anyway.
No log line and no error text contains the token.
"""

import hmac
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from protocol.proxy_header import HostPort
from proxy.auth.failures import SettingFault
from proxy.config.config import Config
from proxy.core.addresses import host_network
from proxy.core.files import read_regular
from proxy.core.threads import NoThread, in_thread
from proxy.net.listen.unix_sockets import credentials_of
from proxy.web.http.errors import HttpRefused
from proxy.web.http.origins import names_a_page

if TYPE_CHECKING:
    from collections.abc import Mapping

LEAST_TOKEN: Final = 16
LARGEST_TOKEN: Final = 4096
READ_SECONDS: Final = 2.0
_KEY: Final = Config.admin_api_token_file_path.name


@dataclass(frozen=True, slots=True)
class Peer:
    """The client of a connection; `local`: it uses the control socket, whose file mode the kernel has checked.

    `host` is what its other connections have in common with this one: its user, or the network of its address.
    """

    name: str
    local: bool
    host: str


def peer_of(sock: socket.socket) -> Peer:
    """Return the client of a connection, named by user and process on a Unix socket, by its address otherwise."""
    if sock.family == socket.AF_UNIX:
        pid, uid, _ = credentials_of(sock)
        return Peer(f"uid {uid}, pid {pid}", local=True, host=f"uid {uid}")
    try:
        address = HostPort.of(*sock.getpeername()[:2])
    except OSError:
        return Peer("?", local=False, host="?")
    return Peer(str(address), local=False, host=host_network(address.host))


def read_token(path: str) -> bytes:
    """Return the token in the file of `adminApiTokenFilePath`; raises SettingFault."""
    try:
        token = read_regular(path, LARGEST_TOKEN + len("\r\n")).strip()
    except OSError as error:
        raise SettingFault(_KEY, f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    if not LEAST_TOKEN <= len(token) <= LARGEST_TOKEN or not token.isascii() or len(token.split()) != 1:
        expected = f"{path}: expected one word of {LEAST_TOKEN} to {LARGEST_TOKEN} ascii characters"
        raise SettingFault(_KEY, f"{expected}, got {len(token)} bytes")
    return token


class AdminAccess:
    """Authorizes requests; `token_file` is empty if there is only the control socket."""

    def __init__(self, token_file: str) -> None:
        self._token_file = token_file

    async def check(self, peer: Peer, headers: "Mapping[str, str]") -> None:
        """Raise HttpRefused unless a request is permitted: 401, 403, or 503 if the token cannot be read."""
        if peer.local:
            return
        if names_a_page(headers):
            raise HttpRefused(403, "the admin API is not for web pages", "cross_origin")
        kind, _, presented = headers.get("Authorization", "").partition(" ")
        if kind.lower() != "bearer" or not presented:
            raise self._unknown("send the token: Authorization: Bearer ...")
        try:
            token = await in_thread(lambda: read_token(self._token_file), "admin token", READ_SECONDS)
        except (SettingFault, TimeoutError, NoThread) as error:
            raise HttpRefused(503, f"the token cannot be read now ({_KEY})", "token") from error
        if not hmac.compare_digest(presented.strip().encode(errors="surrogateescape"), token):
            raise self._unknown("the token is wrong")

    @staticmethod
    def _unknown(reason: str) -> HttpRefused:
        return HttpRefused(401, f"{reason} ({_KEY})", "authentication", (("WWW-Authenticate", "Bearer"),))
