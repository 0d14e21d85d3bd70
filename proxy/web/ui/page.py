"""The page for people, at `/` and `/ui`: one HTML file without a framework, and the two documents that it asks for.

Rules: the page itself says only name and version, to anybody. The documents are for clients on loopback, for those of a
listener of its own (`webBindAddress`), or with `authenticationEnabled` for clients that may see `/config`. The page
loads nothing from other hosts: its Content-Security-Policy names the hashes of its own script and style.
"""

import ipaddress
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

import orjson

from proxy.config.config import Config
from proxy.config.core import Core
from proxy.core.version import VERSION
from proxy.web.http.documents import refusal
from proxy.web.http.errors import JSON
from proxy.web.pages import Access, Page, PageAnswer, PageRequest

HTML: Final = "text/html; charset=utf-8"
# For as long as this, viewers get the same document; and so many documents are given out in this time.
SHARED_SECONDS: Final = 1.0
MOST_VIEWS: Final = 64
_PLACE: Final = Path(__file__).parent
_NO_STORE: Final = ("Cache-Control", "no-store")
_ONLY_HERE: Final = (
    "these numbers are shown on loopback, on the listener of webBindAddress, or with authenticationEnabled to clients "
    "that authenticate"
)


def ui_pages(
    core: Core, seen: Callable[[], Mapping[str, object]], configured: Callable[[], Mapping[str, object]]
) -> Iterator[Page]:
    """Yield the pages, with a document of what is seen now (`ui_document`) and one of what is configured."""
    page, policy = _page()
    html_headers = (
        _NO_STORE, ("Content-Security-Policy", policy), ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"), ("X-Frame-Options", "DENY"),
    )  # fmt: skip
    state, settings = _SharedDocument(seen), _SharedDocument(configured)

    async def html(_: PageRequest) -> PageAnswer:
        return PageAnswer(page, 200, HTML, html_headers)

    async def numbers(request: PageRequest) -> PageAnswer:
        return _answer(request, core.config, state)

    async def values(request: PageRequest) -> PageAnswer:
        return _answer(request, core.config, settings)

    for path in ("/", "/ui"):
        yield Page("GET", path, html, Access.ANYBODY, "A page for people: memory, brokers, refusals, configuration.")
    yield Page("GET", "/ui/state", numbers, Access.AUTHENTICATED, "The numbers that the page for people shows.")
    yield Page("GET", "/ui/config", values, Access.AUTHENTICATED, "The configuration that the page for people shows.")


def _answer(request: PageRequest, config: Config, document: "_SharedDocument") -> PageAnswer:
    refused = _refusal(request, config)
    if refused is not None:
        return PageAnswer(orjson.dumps(refused[1]), refused[0], JSON, (_NO_STORE,))
    body = document.get(time.monotonic())
    if body is None:
        return PageAnswer(orjson.dumps({"reason": "too many viewers"}), 503, JSON, (_NO_STORE, ("Retry-After", "5")))
    return PageAnswer(body, 200, JSON, (_NO_STORE,))


def _refusal(request: PageRequest, config: Config) -> tuple[int, Mapping[str, object]] | None:
    """Return the status and the body for a client that may not see the documents, None if it may."""
    if not config.enable_proxy_stats_endpoints:
        return 403, {"reason": "switched off (enableProxyStatsEndpoints)"}
    if config.authentication_enabled:
        answer = refusal(config, request.client.role)
        return None if answer is None else (answer.status, {"reason": "this role may not see it (superUserRoles)"})
    chosen = config.web_bind_address
    if request.is_local() or (chosen and all(map(_chosen, chosen))):
        return None
    return 403, {"reason": _ONLY_HERE}


def _chosen(address: str) -> bool:
    """Return whether an address of the web port is one that was chosen, not every address of the machine."""
    try:
        return not ipaddress.ip_address(address.strip("[]")).is_unspecified
    except ValueError:
        return True


class _SharedDocument:
    """A document that viewers share for `SHARED_SECONDS`, `MOST_VIEWS` of them."""

    def __init__(self, make: Callable[[], Mapping[str, object]]) -> None:
        self._make = make
        self._body = b""
        self._made_at = float("-inf")
        self._views = 0

    def get(self, now: float) -> bytes | None:
        """Return the document, None if too many viewers have got it."""
        if now - self._made_at >= SHARED_SECONDS:
            self._body, self._made_at, self._views = orjson.dumps(self._make()), now, 0
        self._views += 1
        return self._body if self._views <= MOST_VIEWS else None


def _page() -> tuple[bytes, str]:
    """Return the page and its Content-Security-Policy."""
    script, style = ((_PLACE / name).read_text(encoding="utf-8") for name in ("page.js", "page.css"))
    html = (_PLACE / "page.html").read_text(encoding="utf-8")
    for mark, text in (("{{style}}", style), ("{{script}}", script), ("{{version}}", VERSION)):
        html = html.replace(mark, text)
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return html.encode(), policy


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
