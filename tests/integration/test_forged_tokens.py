"""Tokens that nobody signed, and methods that nobody has: no role by any of the doors."""

import hmac
import json
from collections.abc import Iterator
from typing import Any

import pytest

from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.auth.tokens import SECRET, b64, data_url, der, key_for, pem, signed
from tests.support.clients.async_client import connect_frame
from tests.support.web.web_stage import ADMIN, WebStage, web_staged


def tokens(**key: str) -> dict[str, Any]:
    return {"authenticationEnabled": "true", "authenticationProviders": "token", **key}


async def refused(at: WebStage, token: bytes, method: str = "token") -> None:
    """Present a token by both protocols: each says no, and no broker hears of it."""
    client = await at.stage.client()
    await client.send(connect_frame(auth_method_name=method, auth_data=token))
    answer = await client.last_command()
    assert (answer.type, answer.error.error) == (pb.BaseCommand.ERROR, ServerError.AuthenticationError), token
    if method == "token":
        async with at.client.get(at.url + ADMIN, headers={"Authorization": f"Bearer {token.decode()}"}) as page:
            assert page.status == 401, token
    assert at.broker.asked == []


async def taken(at: WebStage, token: bytes) -> None:
    """Show that the same door opens for a token that is one."""
    client = await at.stage.client()
    await client.send(connect_frame(auth_method_name="token", auth_data=token))
    assert (await client.command()).type == pb.BaseCommand.CONNECTED


def unsigned() -> Iterator[bytes]:
    for algorithm in ("none", "None", "NONE", "", "HS1", "EdDSA"):
        for signature in (b"", b64(b"x"), b64(bytes(32))):
            yield b64(json.dumps({"alg": algorithm}).encode()) + b"." + b64(b'{"sub":"admin"}') + b"." + signature


@pytest.mark.threat("unsigned-token")
async def test_a_token_that_nobody_signed_proves_nothing() -> None:
    for algorithm, key in (
        ("HS256", {"tokenSecretKey": data_url(SECRET)}),
        ("RS256", {"tokenPublicKey": data_url(der(key_for("RS256")))}),
    ):
        async with web_staged(**tokens(**key)) as at:
            for token in unsigned():
                await refused(at, token)
            await refused(at, signed({"sub": "admin"}, algorithm)[:-2])
            await taken(at, signed({"sub": "admin"}, algorithm))


@pytest.mark.threat("hmac-with-public-key")
async def test_the_public_key_that_everybody_has_signs_no_token() -> None:
    for algorithm in ("RS256", "ES256"):
        key = key_for(algorithm)
        algorithms = {"tokenPublicAlg": algorithm, "tokenPublicKey": data_url(der(key))}
        async with web_staged(**tokens(**algorithms)) as at:
            covered = b64(b'{"alg":"HS256"}') + b"." + b64(b'{"sub":"admin"}')
            for known in (der(key), pem(key), pem(key).strip()):
                await refused(at, covered + b"." + b64(hmac.digest(known, covered, "sha256")))
            await taken(at, signed({"sub": "admin"}, algorithm))


@pytest.mark.threat("made-up-auth-method")
async def test_a_made_up_method_is_not_the_anonymous_role() -> None:
    keys = tokens(tokenSecretKey=data_url(SECRET), anonymousUserRole="guest")
    async with web_staged(**keys) as at:
        for method in ("sasl", "basic", "TOKEN", "token ", "None", "made up"):
            await refused(at, b"x", method)
        client = await at.stage.client()
        await client.send(connect_frame())
        assert (await client.command()).type == pb.BaseCommand.CONNECTED
