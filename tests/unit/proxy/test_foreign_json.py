"""JSON from outside: what cannot be read is an error of its sender, whoever reads it, and never one of the proxy.

The other readers have such answers among those of their own tests: the lists and statistics of brokers, the issuers.
"""

import base64

import pytest

from proxy.auth.failures import CredentialsRefused, Reason
from proxy.auth.own.oauth2 import read_key
from proxy.auth.providers.token import TokenProvider
from proxy.cli.admin.client import AdminClient, NoAnswer
from proxy.config.config import Config
from proxy.config.credential_parameters import BadParameters, parse_credentials
from proxy.config.keys.key import BadValue
from proxy.core.errors import CredentialsUnavailable
from proxy.web.forward.broker_ports import BrokerPorts
from proxy.web.forward.headers import extra_headers
from tests.support.auth.authentication import at_once
from tests.support.auth.tokens import NOW, SECRET, b64, data_url, signed_bytes
from tests.support.configured import configured
from tests.support.cores import core_of
from tests.support.each import each
from tests.support.loops.clock import ManualClock
from tests.unit.proxy.cli.test_admin_client import answering

TEXTS = [
    "[" * 15_000,
    '{"a":' * 15_000,
    # More digits than Python makes a number of.
    '{"brokerUrl":"pulsar://b:6650","client_id":"a","client_secret":"b","n":' + "9" * 5000 + "}",
    "NaN",
    "\0",
]
DOCUMENTS = [*map(str.encode, TEXTS), b'{"a":"\xff"}']


@pytest.mark.threat("json-brackets")
@each("text", TEXTS)
def test_a_key_that_is_an_object_says_what_it_expects(text: str) -> None:
    with pytest.raises(BadValue, match="a JSON object of texts"):
        Config.proxy_http_response_headers_json.parse(text)
    with pytest.raises(ValueError, match="proxyHttpResponseHeadersJson: expected a json object"):
        extra_headers(text)


@each("text", TEXTS)
def test_parameters_of_a_plugin_say_what_they_expect(text: str) -> None:
    for plugin in ("basic", "oauth2", "tls"):
        with pytest.raises(BadParameters, match="expected "):
            parse_credentials(plugin, text)


@each("document", DOCUMENTS)
def test_a_key_file_that_is_none_is_unavailable(document: bytes) -> None:
    with pytest.raises(CredentialsUnavailable, match="privateKey"):
        read_key("data:application/json;base64," + base64.b64encode(document).decode())


@pytest.mark.threat("json-brackets")
@each("document", DOCUMENTS)
def test_a_token_of_it_is_refused(document: bytes) -> None:
    provider = TokenProvider(configured(tokenSecretKey=data_url(SECRET)), lambda: NOW)
    for token in (signed_bytes(document), b".".join((b64(document), b64(b"{}"), b64(b"signed")))):
        with pytest.raises(CredentialsRefused) as refused:
            at_once(provider.authenticate(token, None, "192.0.2.1"))
        assert refused.value.reason is Reason.INVALID_TOKEN


@pytest.mark.threat("json-brackets")
@each("document", DOCUMENTS)
def test_an_answer_to_a_lookup_passes_as_it_is(document: bytes) -> None:
    core = core_of(config=configured(bindAddress="127.0.0.1"), loop=ManualClock())
    ports = BrokerPorts(core, lambda *_: 6650)
    ports.web_opened(8080, None)
    assert ports.rewritten(document, "proxy") == document


@each("document", DOCUMENTS)
def test_an_answer_to_an_operators_command_is_none(document: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(document)
    with answering(head, document) as (path, _), pytest.raises(NoAnswer, match="no proxy answers"):
        AdminClient([path]).ask("GET", "/v1/top")
