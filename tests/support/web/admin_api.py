"""Own requests to the admin API, made by hand, one a connection, over the control socket or a port."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from proxy.web.admin import access
from tests.support.clients.async_client import LOOPBACK
from tests.support.log_lines import LogLines
from tests.support.patience import in_time, patient
from tests.support.proxies.proxy_under_test import Stage, kept_log, staged

TOKEN: Final = "correct-horse-battery-staple"


class Answered(NamedTuple):
    """What the API answered; a body that is cut is no document and fails the test."""

    status: int
    headers: dict[str, str]
    document: Any


async def connect(place: Path | int, source: str = LOOPBACK) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection to a socket's path, or to a port of this machine from an address of this machine."""
    if isinstance(place, Path):
        return await asyncio.open_unix_connection(place)
    return await asyncio.open_connection(LOOPBACK, place, local_addr=(source, 0))


async def raw(place: Path | int, request: bytes) -> bytes:
    """Send bytes and read until the other side ends it; what came before a reset counts."""
    # Not a StreamReader: it drops what it has when the connection is reset behind it.
    loop, found = asyncio.get_running_loop(), b""
    with socket.socket(socket.AF_UNIX if isinstance(place, Path) else socket.AF_INET) as sock:
        sock.setblocking(False)
        async with in_time():
            await loop.sock_connect(sock, str(place) if isinstance(place, Path) else (LOOPBACK, place))
            with suppress(ConnectionError):
                await loop.sock_sendall(sock, request)
            with suppress(ConnectionError):
                while piece := await loop.sock_recv(sock, 65536):
                    found += piece
    return found


async def ask(
    place: Path | int, method: str, target: str, body: object = None, headers: dict[str, str] | None = None
) -> Answered:
    """Ask one thing."""
    sent = b"" if body is None else json.dumps(body).encode()
    fields = {"Host": "localhost", "Content-Length": str(len(sent)), **(headers or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return parsed(await raw(place, f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode() + sent))


def parsed(answer: bytes) -> Answered:
    """Take an answer apart."""
    head, _, rest = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    body = _unchunked(rest) if headers.get("transfer-encoding") == "chunked" else rest
    return Answered(int(status.split(" ")[1]), headers, json.loads(body))


def _unchunked(rest: bytes) -> bytes:
    found = b""
    while True:
        length, _, rest = rest.partition(b"\r\n")
        count = int(length, 16)
        if not count:
            return found
        found, rest = found + rest[:count], rest[count + 2 :]


@dataclass
class AdminStage:
    """A stage, its control socket, and its log."""

    stage: Stage
    path: Path
    log: LogLines

    async def ask(self, method: str, target: str, body: object = None) -> Answered:
        return await ask(self.path, method, target, body)

    async def get(self, target: str) -> Any:
        """Get a document, which must be there."""
        answered = await self.ask("GET", target)
        assert answered.status == 200, answered
        return answered.document

    async def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.get("/v1/connections"))["connections"]
        return found

    async def is_gone(self, number: int) -> None:
        """Wait until a connection that was ended is unknown: a relay leaves a turn of the loop after its end."""
        async with in_time():
            while True:
                if (await self.ask("GET", f"/v1/connections/{number}")).status == 404:
                    return
                await asyncio.sleep(0.002)

    async def nobody_asks(self) -> None:
        await self.stage.until(lambda: not len(self.stage.proxy.admin), "no admin client left")


@asynccontextmanager
async def admin_staged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, at_address: bool = False, **keys: Any
) -> AsyncIterator[AdminStage]:
    """Run a stage with a control socket, also `at_address` for those with the token; no admin client may be left."""
    log = kept_log(monkeypatch)
    # A thread that gets no processor is no disk that hangs.
    monkeypatch.setattr(access, "READ_SECONDS", patient(access.READ_SECONDS))
    if at_address:
        (tmp_path / "token").write_text(f"{TOKEN}\n")
        keys |= {"adminApiAddress": "127.0.0.1:0", "adminApiTokenFilePath": tmp_path / "token"}
    async with staged(controlSocketPath=tmp_path / "s", **keys) as stage:
        found = AdminStage(stage, tmp_path / "s", log)
        yield found
        await found.nobody_asks()
