"""Private state of aiohttp that the proxy uses, each attribute by name: no release of aiohttp promises to keep it."""

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.client_proto import ResponseHandler
from aiohttp.payload import BytesPayload, Payload
from aiohttp.web_protocol import RequestHandler

import proxy

# For a newer aiohttp: look at each use below (`proxy/web`), then raise the bound in pyproject.toml.
USED: dict[type, set[str]] = {
    RequestHandler: {
        "_buffer_paused",
        "_close",
        "_current_request",
        "_force_close",
        "_loop",
        "_manager",
        "_max_msg_queue_size",
        "_message_tail",
        "_messages",
        "_msg_queue_resume_size",
        "_parser",
        "_process_keepalive",
        "_read_bufsize",
        "_reading_paused",
        "_request_count",
        "_resume_transport_reading",
        "_upgraded",
    },
    ResponseHandler: {
        "_buffer_paused",
        "_loop",
        "_pause_transport_reading",
        "_reading_paused",
        "_resume_transport_reading",
    },
    web.Server: {"_kwargs", "_loop"},
    aiohttp.TCPConnector: {"_factory", "_loop"},
    Payload: {"_size"},
}
USED_CLASS = ("aiohttp._websocket.reader", "WebSocketReader")

HOUSE = Path(proxy.__file__).parent


async def answer(request: web.BaseRequest) -> web.StreamResponse:
    raise NotImplementedError


def state_of(base: type) -> set[str]:
    """Return the private names that `base` and what is made of it have."""
    made: dict[type, Any] = {
        web.Server: lambda: web.Server(answer),
        aiohttp.TCPConnector: aiohttp.TCPConnector,
        Payload: lambda: BytesPayload(b""),
        web.StreamResponse: web.StreamResponse,
    }
    return {name for name in dir(made[base]() if base in made else base) if private(name)}


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def modules() -> Iterator[ModuleType]:
    """Yield the modules of the proxy that import aiohttp."""
    for path in sorted(HOUSE.rglob("*.py")):
        if "import aiohttp" in (text := path.read_text(encoding="utf-8")) or "from aiohttp" in text:
            yield importlib.import_module(".".join(path.relative_to(HOUSE.parent).with_suffix("").parts))


def names_in(of: type) -> set[str]:
    """Return the private names that the source of a class reads, writes or defines on itself."""
    names = set()
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(of)))):
        if isinstance(node, ast.Attribute) and private(node.attr):
            names.add(node.attr)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and private(node.name):
            names.add(node.name)
    return names


async def test_no_other_private_state_of_aiohttp_is_used() -> None:
    unlisted = []
    for of in (each for module in modules() for each in vars(module).values() if inspect.isclass(each)):
        if not of.__module__.startswith("proxy."):
            continue
        names = names_in(of) - set().union(*(USED.get(base, set()) for base in of.__mro__))
        for base in (each for each in of.__mro__ if each.__module__.startswith("aiohttp.")):
            unlisted += [f"{of.__qualname__}: {base.__name__}.{name}" for name in names & state_of(base)]
    assert unlisted == []


def test_no_other_private_module_of_aiohttp_is_used() -> None:
    used = set()
    for module in modules():
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("aiohttp._"):
                used |= {(node.module, each.name) for each in node.names}
    assert used == {USED_CLASS}
