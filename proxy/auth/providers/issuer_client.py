"""Fetch the keys of an OpenID issuer: its discovery document, then the key set that the document names.

Rule: an issuer is not trusted more than any other peer. Each answer is bounded in time and size, redirects and
compression are refused, and keys are accepted only if the document names this issuer. aiohttp is imported at the first
fetch, off the event loop. Source: OpenID Connect Discovery 1.0, sections 4 and 7; RFC 7517.
"""

import asyncio
import importlib
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson

from proxy.auth.failures import Reason, SettingFault
from proxy.auth.issuer_sockets import issuer_socket
from proxy.auth.providers.verifying_keys import VerifyingKey, issuer_key
from proxy.config.config import Config
from proxy.core.errors import ProxyError

if TYPE_CHECKING:
    from aiohttp import ClientSession

LARGEST_ANSWER_BYTES: Final = 512 * 1024
MOST_KEYS: Final = 100
LONGEST_KEY_ID: Final = 512
_CHUNK_BYTES: Final = 16 * 1024

Keys = Mapping[str, VerifyingKey]


class IssuerFault(ProxyError):
    """The keys of an issuer cannot be fetched now; the text gives the reason."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class IssuerClient:
    """Fetches the keys of issuers and holds nothing between two fetches; the constructor raises SettingFault."""

    def __init__(self, config: Config) -> None:
        self._trust_file = config.open_id_token_issuer_trust_certs_file_path
        self._https_only = config.open_id_require_issuers_use_https
        self._connect_seconds = config.seconds(Config.open_id_http_connection_timeout_millis)
        self._read_seconds = config.seconds(Config.open_id_http_read_timeout_millis)
        try:
            self._trust()
        except OSError as error:
            raise SettingFault(
                "openIDTokenIssuerTrustCertsFilePath", f"cannot use {self._trust_file}: {error}"
            ) from error

    async def fetch(self, issuer: str) -> Keys:
        """Return the keys that an issuer publishes now, by key id; raise IssuerFault.

        Both answers and the file of certificates together have the time of two requests: an endless wait would be the
        last request to this issuer.
        """
        longest_seconds = 2 * (self._connect_seconds + self._read_seconds)
        try:
            async with asyncio.timeout(longest_seconds):
                return await self._fetch(issuer)
        except TimeoutError:
            what = Reason.ERROR_RETRIEVING_PROVIDER_METADATA
            raise IssuerFault(what, f"issuer {issuer}: no keys within {longest_seconds:g} s") from None

    async def _fetch(self, issuer: str) -> Keys:
        loop = asyncio.get_running_loop()
        aiohttp = await loop.run_in_executor(None, importlib.import_module, "aiohttp")
        timeout = aiohttp.ClientTimeout(
            total=self._connect_seconds + self._read_seconds,
            connect=self._connect_seconds,
            sock_read=self._read_seconds,
        )
        # Load the trusted certificates again: their file may have been replaced.
        try:
            trust = await loop.run_in_executor(None, self._trust)
        except OSError as error:
            raise IssuerFault(
                Reason.ERROR_RETRIEVING_PROVIDER_METADATA, f"openIDTokenIssuerTrustCertsFilePath: {error}"
            ) from None
        connector = aiohttp.TCPConnector(ssl=trust, force_close=True, limit=1, socket_factory=issuer_socket)
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, headers=headers, auto_decompress=False
        ) as session:
            address = await self._address_of_keys(session, issuer)
            what = Reason.ERROR_RETRIEVING_PUBLIC_KEY
            published = await _get(session, address, what)
        return await loop.run_in_executor(None, _usable_keys, published)

    def _trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._trust_file or None)

    async def _address_of_keys(self, session: "ClientSession", issuer: str) -> str:
        what = Reason.ERROR_RETRIEVING_PROVIDER_METADATA
        document = await _get(session, issuer.rstrip("/") + "/.well-known/openid-configuration", what)
        if document.get("issuer") != issuer:
            raise IssuerFault(what, f"issuer {issuer}: its discovery document names another issuer")
        address = document.get("jwks_uri")
        schemes = ("https://",) if self._https_only else ("https://", "http://")
        if not isinstance(address, str) or not address.lower().startswith(schemes):
            raise IssuerFault(what, f"issuer {issuer}: expected a jwks_uri that begins with {' or '.join(schemes)}")
        return address


async def _get(session: "ClientSession", address: str, what: Reason) -> dict[str, Any]:
    from aiohttp import ClientError

    body = bytearray()
    try:
        async with session.get(address, allow_redirects=False) as response:
            if response.status != 200:
                raise IssuerFault(what, f"{address}: got status {response.status}, expected 200")
            async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                body += chunk
                if len(body) > LARGEST_ANSWER_BYTES:
                    raise IssuerFault(what, f"{address}: an answer of more than {LARGEST_ANSWER_BYTES} bytes")
    except TimeoutError:
        raise IssuerFault(what, f"{address}: no answer in time") from None
    except (ClientError, OSError, ValueError) as error:
        raise IssuerFault(what, f"{address}: {error or type(error).__name__}") from None
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = None
    if not isinstance(document, dict):
        raise IssuerFault(what, f"{address}: expected a JSON object")
    return document


def _usable_keys(published: dict[str, Any]) -> Keys:
    entries = published.get("keys")
    if not isinstance(entries, list):
        raise IssuerFault(Reason.ERROR_RETRIEVING_PUBLIC_KEY, "expected a key set with a list of keys (RFC 7517)")
    keys: dict[str, VerifyingKey] = {}
    for entry in entries[:MOST_KEYS]:
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
            continue
        key_id = entry.get("kid")
        if not isinstance(key_id, str) or not 0 < len(key_id) <= LONGEST_KEY_ID:
            continue
        try:
            keys[key_id] = issuer_key(entry)
        except ValueError:
            # RFC 7517, section 5: unknown kinds of keys are ignored.
            continue
    return keys
