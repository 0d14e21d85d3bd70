"""An OpenID issuer on a local port, honest or not, and the tokens it signs."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from joserfc.jwk import Key

from tests.support.auth.tokens import NOW, ec_key, rsa_key, signed

DISCOVERY = "/.well-known/openid-configuration"
AUDIENCE = "pulsar"


def published(key_id: str, key: Key, **more: Any) -> dict[str, Any]:
    return {**key.as_dict(private=False), "kid": key_id, **more}


class Issuer:
    """What it publishes may be changed at any time; `asked` counts requests by path."""

    def __init__(self) -> None:
        self.url = ""
        self.names_itself: str | None = None
        self.jwks_uri: str | None = None
        self.keys: list[dict[str, Any]] = [published("rsa", rsa_key()), published("ec", ec_key())]
        self.asked: dict[str, int] = {}
        self.answer: Callable[[web.Request], web.StreamResponse] | None = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    def token(
        self, key_id: str | None = "rsa", algorithm: str = "RS256", key: Key | None = None, **claims: Any
    ) -> bytes:
        """Make a token that is in order but for what `claims` change; a claim of None is left out."""
        said = {"iss": self.url, "sub": "alice", "aud": AUDIENCE, "iat": NOW - 60, "nbf": NOW - 60, "exp": NOW + 600}
        said = {name: value for name, value in (said | claims).items() if value is not None}
        return signed(said, algorithm, key, **({} if key_id is None else {"kid": key_id}))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked[request.path] = self.asked.get(request.path, 0) + 1
        await self.may_answer.wait()
        if self.answer is not None:
            return self.answer(request)
        if request.path == DISCOVERY:
            jwks_uri = self.jwks_uri or f"{self.url}/keys"
            return web.json_response({"issuer": self.names_itself or self.url, "jwks_uri": jwks_uri})
        return web.json_response({"keys": self.keys})


@asynccontextmanager
async def running_issuer(tls: ssl.SSLContext | None = None) -> AsyncIterator[Issuer]:
    """Listen until the block ends; `may_answer` is set then, so that nobody waits."""
    issuer = Issuer()
    app = web.Application()
    app.router.add_get("/{path:.*}", issuer.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    issuer.url = f"http{'s' if tls else ''}://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield issuer
    finally:
        issuer.may_answer.set()
        await runner.cleanup()
