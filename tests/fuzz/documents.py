"""The readers of files, HTTP and tokens under the fuzzer: their rules and their seeds (see `targets`)."""

import io
import json
import os
import tempfile
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from eventlog.members import gzip_spans
from eventlog.recovery import recover
from proxy.auth.providers.signed_token import BadToken, check_audience, check_times, parse_token, role_in
from proxy.config.config import Config
from proxy.config.properties import parse_conf
from proxy.config.sources import ConfigError
from proxy.web.forward.headers import RequestLoop, UnsafeHeader, to_broker, to_client
from proxy.web.forward.routes import BadPath, RouteTable, checked_segments
from proxy.web.http.origins import host_of
from proxy.web.http.paths import origin_form
from tests.support.auth.tokens import b64, signed


def configuration(data: bytes) -> None:
    parsed = parse_conf(data)
    lines = data.count(b"\n") + data.count(b"\r") + 1
    assert all(1 <= entry.line <= lines for entry in parsed.entries)
    assert all(1 <= fault.line <= lines for fault in parsed.faults)
    place = _scratch() / "proxy.conf"
    place.write_bytes(data)
    try:
        config = Config.load(place)
    except ConfigError as error:
        problems = [str(problem) for problem in error.problems]
    else:
        # What was accepted can be said again, key by key.
        problems = [text for _, text, _ in config.items()]
    assert problems, "refused without a reason"
    assert all(isinstance(text, str) for text in problems)


def configuration_seeds() -> list[bytes]:
    shipped = (Path(__file__).parents[2] / "proxy.conf").read_bytes()
    keys = [
        b"brokerServiceURL=pulsar://a:6650\nservicePort=0\n",
        b"brokerServiceURL = pulsar://a:1,b:2\\\n  ,c:3\nwebServicePort:8080\n# c\n! d\n\\u0061=b\n",
        b"brokerServiceURL=pulsar://a:6650\nauthenticationEnabled=true\n"
        b"authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderToken\n",
        b"brokerServiceURL=pulsar://a:6650\nhttpReverseProxy.x.path=/x\nhttpReverseProxy.x.proxyTo=http://y\n",
    ]
    named = b"".join(
        line[1:].strip() + b"\n" if line.startswith(b"#") else line + b"\n"
        for line in shipped.splitlines()
        if b"=" in line
    )
    return [*keys, *(named[start : start + 1000] for start in range(0, min(len(named), 8000), 1000))]


def http(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    path, _, rest = text.partition("\n")
    headers = [
        (name, value.strip(" ")) for name, _, value in (line.partition(":") for line in rest.split("\n")) if name
    ]
    with suppress(BadPath):
        segments = checked_segments(path)
        assert not {".", ".."} & set(segments)
        assert all(sign.isprintable() or ord(sign) > 0x7F for segment in segments for sign in segment)
        for method in ("GET", "PUT"):
            RouteTable().find(method, segments)
    origin_form(path, "proxy.example")
    host = host_of(path)
    assert host.isascii()
    assert not set(host) & set(" /@\r\n")
    with suppress(UnsafeHeader, RequestLoop):
        passed = to_broker(headers, client_address="192.0.2.1", scheme="http", host="h", via="w")
        _one_line_each(passed)
        ours = [value for name, value in passed if name.lower() == "x-forwarded-for"]
        assert len(ours) == 1
        assert ours[0].endswith("192.0.2.1")
        assert not any(
            name.lower() in ("x-original-principal", "connection", "transfer-encoding") for name, _ in passed
        )
    with suppress(UnsafeHeader):
        _one_line_each(to_client(headers))


def _one_line_each(headers: Sequence[tuple[str, str]]) -> None:
    for name, value in headers:
        assert not set(f"{name}{value}") & {"\r", "\n", "\0"}
        assert name
        assert ":" not in name


def http_seeds() -> list[bytes]:
    paths = [
        b"/admin/v2/persistent/a/b",
        b"/lookup/v2/topic/persistent/a/b/c",
        b"http://h:80/x?y",
        b"/%2e%2e/x;a=b/%5c",
    ]
    headers = b"\nHost: a:80\nConnection: close, x-y\nX-Y: 1\nX-Forwarded-For: 1.2.3.4\nVia: 1.1 z\nCookie: a=b"
    headers += b"\nx_original_principal: r"
    return [path + headers for path in paths]


def event_file(data: bytes) -> None:
    spans = gzip_spans(io.BytesIO(data))
    at = 0
    for span in spans:
        assert span.start == at < span.end
        at = span.end
    assert at == len(data)
    sound = [span for span in spans if span.kind == "sound"]
    lines = sum(_text(data[span.start : span.end]).count(b"\n") for span in sound)
    assert lines == sum(span.lines for span in sound)
    place = _scratch()
    name = ".events-p-0123456789abcdef-000001.jsonl.gz.open"
    (place / name).write_bytes(data)
    done = recover(place, lambda text: None)
    assert done.finished <= 1
    assert not (place / name).exists()
    finished = place / name[1:].removesuffix(".open")
    if done.finished:
        assert finished.read_bytes() == b"".join(data[span.start : span.end] for span in sound)
    for left in os.listdir(place):
        (place / left).unlink()


def _text(members: bytes) -> bytes:
    text = b""
    while members:
        member = zlib.decompressobj(31)
        text += member.decompress(members)
        members = member.unused_data
    return text


def event_seeds() -> list[bytes]:
    def member(lines: int) -> bytes:
        made = zlib.compressobj(1, zlib.DEFLATED, 31)
        return made.compress(b'{"kind":"request"}\n' * lines) + made.flush()

    whole = [member(1), member(9)]
    return [b"", *whole, b"".join(whole), whole[0] + whole[1][:20], whole[0] + b"\0" * 30, b"x" + whole[0] + whole[1]]


def token(data: bytes) -> None:
    try:
        parsed = parse_token(data)
    except BadToken as refused:
        parsed, told = None, str(refused)
    if parsed is None:
        assert data.decode("latin-1") not in told or len(data) < 8
        return
    assert data.startswith(parsed.signed + b".")
    # One spelling: no other bytes are the same token.
    assert parse_token(bytes(data)) == parsed
    with suppress(BadToken):
        expiry = check_times(parsed.claims, 1_700_000_000.0, 60.0, ("nbf", "iat"))
        assert expiry is None or expiry > 1_700_000_000.0
    with suppress(BadToken):
        check_audience(parsed.claims, "aud", frozenset({"me"}))
    with suppress(BadToken):
        assert role_in(parsed.claims, "sub").isprintable()


def token_seeds() -> list[bytes]:
    claims: list[dict[str, Any]] = [
        {"sub": "me", "exp": 2_000_000_000, "nbf": 1, "iat": 1, "aud": ["me", "you"]},
        {"sub": ["a"], "exp": 1e300, "aud": "me"},
    ]
    odd = [
        b'{"alg":"none"}',
        b'{"alg":"RS256","kid":"k","crit":["x"]}',
        b'{"alg":5}',
        b"[]",
        b'{"alg":"HS256","kid":null}',
    ]
    body = b64(json.dumps(claims[0]).encode())
    return [*(signed(each) for each in claims), *(b64(header) + b"." + body + b".YQ" for header in odd)]


_places: dict[int, Path] = {}


def _scratch() -> Path:
    """Return a directory of this process, in memory where there is one."""
    if (found := _places.get(os.getpid())) is None:
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        found = _places[os.getpid()] = Path(tempfile.mkdtemp(prefix="pulsar-proxy-fuzz-", dir=base))
    return found
