"""What the web ports decide without I/O: headers, paths, limits, turns of servers, answers to lookups."""

import json

import pytest
from aiohttp.streams import EMPTY_PAYLOAD
from yarl import URL

from proxy.brokers.target import TargetValidator
from proxy.config.sources import ReverseProxyRoute
from proxy.core.log import open_log
from proxy.net.write_watch import WriteLimits
from proxy.web.forward.gate import Gate, GateLimits
from proxy.web.forward.headers import UnsafeHeader, extra_headers, to_broker, to_client
from proxy.web.forward.lookup_answers import lookup_in, rewritten
from proxy.web.forward.own_credentials import check_rights, identity_headers, judged_by_header
from proxy.web.forward.redirects import RedirectRules, follows
from proxy.web.forward.routes import (
    Care,
    Destination,
    Group,
    RouteTable,
    checked_segments,
)
from proxy.web.forward.upstreams import Upstreams
from proxy.web.forward.visits import Visit
from proxy.web.http.errors import HttpRefused
from proxy.web.http.origins import host_of
from proxy.web.http.paths import origin_form
from tests.support.loops.clock import ManualClock
from tests.unit.limiter.harness import start

# --- headers --------------------------------------------------------------------------------------


def sent(*headers: tuple[str, str]) -> dict[str, str]:
    return dict(to_broker(headers, client_address="10.0.0.1", scheme="https", host="p:8443"))


@pytest.mark.threat("websocket-as-proxy")
def test_beside_a_certificate_of_the_proxy_a_broker_is_told_to_judge_by_the_client_s_credentials() -> None:
    claim = ("x-pulsar-AUTH-method-name", "tls")
    for authorization, method in (("Basic YTpi", "basic"), ("Bearer t", "token")):
        found = judged_by_header([claim, ("authorization", authorization)])
        assert found == [("authorization", authorization), ("X-Pulsar-Auth-Method-Name", method)]
    # The token is in the query.
    assert judged_by_header([claim]) == [("X-Pulsar-Auth-Method-Name", "token")]


@pytest.mark.threat("websocket-as-proxy")
async def test_a_certificate_of_the_proxy_proves_nothing_for_a_client_without_credentials() -> None:
    with pytest.raises(HttpRefused, match="authorization header of their client"):
        await check_rights(None, "alice", certificate=True)
    await check_rights(None, "alice", certificate=False)
    await check_rights(None, None, certificate=True)


@pytest.mark.parametrize("name", ["X.Original.Principal", "x_original-PRINCIPAL", "X~Forwarded^For"])
def test_a_name_that_some_server_takes_for_ours_ends_here(name: str) -> None:
    assert name not in sent((name, "admin"))


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\x00b", "a\x7f", "a\udcff"])
async def test_a_value_that_is_more_than_one_line_is_refused_and_not_shown(value: str) -> None:
    for passing in (lambda: sent(("X", value)), lambda: to_client([("X", value)])):
        with pytest.raises(UnsafeHeader) as caught:
            passing()
        assert value not in str(caught.value)
    with pytest.raises(UnsafeHeader) as caught:
        await identity_headers(None, value, has_authorization=False)
    assert value not in str(caught.value)


@pytest.mark.parametrize("text", ["[]", "{", '{"X": "a\\nb"}', '{"Connection": "close"}', '{"a b": "c"}'])
def test_extra_headers_that_no_answer_may_have_are_faults(text: str) -> None:
    with pytest.raises(ValueError, match=r"proxyHttpResponseHeadersJson|header"):
        extra_headers(text)


# --- paths ----------------------------------------------------------------------------------------

ROUTES = RouteTable((ReverseProxyRoute("a", "/extra", "http://x"), ReverseProxyRoute("b", "/extra/deep", "http://y")))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/admin/v2/clusters", Destination(Group.BROKERS)),
        ("/admin/v2/persistent/t/n", Destination(Group.BROKERS, Care.TOPIC_LIST, "t/n")),
        ("/admin/v2/persistent/t/n/partitioned", Destination(Group.BROKERS, Care.TOPIC_LIST, "t/n")),
        ("/admin/v2/namespaces/t/n/topics", Destination(Group.BROKERS, Care.TOPIC_LIST, "t/n")),
        ("/admin/namespaces/t/c/n/destinations", Destination(Group.BROKERS, Care.TOPIC_LIST, "t/c/n")),
        ("/admin/v2/persistent/t/n/topic/stats", Destination(Group.BROKERS)),
        ("/admin/v2/persistent/t/n/topic/subscriptions", Destination(Group.BROKERS)),
        ("/admin/v2/namespaces/t/n", Destination(Group.BROKERS)),
        ("/lookup/v2/topic/persistent/t/n/x", Destination(Group.BROKERS, Care.LOOKUP)),
        ("/lookup/v2/topic/persistent/t/n/x/bundle", Destination(Group.BROKERS)),
        ("/admin/v3/functions/t/n/f", Destination(Group.FUNCTION_WORKERS)),
        ("/admin/v3/sources/t/n", Destination(Group.FUNCTION_WORKERS)),
        ("/admin/worker/cluster", Destination(Group.FUNCTION_WORKERS)),
        ("/admin/v2/worker-stats/metrics", Destination(Group.FUNCTION_WORKERS)),
        ("//admin;a=b/v2/%6eamespaces;/%74/n//topics;x=y", Destination(Group.BROKERS, Care.TOPIC_LIST, "t/n")),
        ("/admin/v2/persistent/t/n/a%2Fb%3Bc/stats", Destination(Group.BROKERS)),
        ("/admin/v2/namespaces/t/n/permissions/spiffe%3A%2F%2Fcluster%2Frole", Destination(Group.BROKERS)),
        ("/lookup/v2/topic/persistent/t/n/a%2Fb", Destination(Group.BROKERS, Care.LOOKUP)),
        ("/ws/v2/producer/persistent/t/n/x", Destination(Group.BROKERS, heeds_roles=False)),
        ("/extra/x", Destination(ROUTES.extra[1])),
        ("/extra/deep/x", Destination(ROUTES.extra[0])),
        ("/extraordinary", None),
        ("/", None),
        ("/admins/x", None),
    ],
)
def test_paths_lead_to_their_servers(path: str, expected: Destination | None) -> None:
    assert ROUTES.find("GET", checked_segments(path)) == expected


@pytest.mark.parametrize(
    ("target", "host", "expected"),
    [
        ("http://p/a?x=1", "p", "/a?x=1"),
        ("HTTPS://P:8080/", "p:8080", "/"),
        ("http://p", "p", "/"),
        ("http://p?x", "p", "/?x"),
        ("http://p//a", "p", "//a"),
        ("http://p/http://q/", "p", "/http://q/"),
        ("http://q/a", "p", None),
        ("http://p:80/a", "p", None),
        ("http://u@p/a", "p", None),
        ("http:///a", "", None),
        ("ftp://p/a", "p", None),
        ("p:80", "p:80", None),
        ("*", "p", None),
    ],
)
def test_a_target_with_the_own_name_is_its_path(target: str, host: str, expected: str | None) -> None:
    assert origin_form(target, host) == expected


# --- limits ---------------------------------------------------------------------------------------


def gate_of(clock: ManualClock, limits: GateLimits) -> Gate:
    return Gate(clock, limits, lambda: WriteLimits(20.0, 100), open_log("error"))


async def test_who_waits_too_long_and_who_finds_the_queue_full_are_told_which_key_to_change() -> None:
    clock = ManualClock()
    gate = gate_of(clock, GateLimits(1, max_waiting=1, wait_seconds=5))

    async def refusal() -> HttpRefused:
        with pytest.raises(HttpRefused, match="maxConcurrentHttpRequests") as caught:
            await gate.enter(Visit(None, EMPTY_PAYLOAD))
        return caught.value

    with await gate.enter(Visit(None, EMPTY_PAYLOAD)):
        waiting = await start(refusal())
        full = await refusal()
        clock.advance(5)
        await waiting
    assert (full.status, "1 wait already" in full.reason) == (503, True)
    assert (waiting.result().status, "none has ended in time" in waiting.result().reason) == (503, True)
    assert (gate.in_work, gate.waiting) == (0, 0)


# --- redirects ------------------------------------------------------------------------------------


@pytest.mark.threat("malformed-redirect")
@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1:65536/",
        "http://broker:x/",
        "http://broker:-1/",
        "http://[::1",
        "http://\u00e9vil.example/",
        "http://\udce9vil.example/",
        "/admin/\udce9",
        "/admin/x HTTP/1.1",
        "//:8080/",
        "http://user@broker:8080/",
        "http://:password@broker:8080/",
        "ftp://broker:8080/",
        "",
    ],
)
async def test_a_redirect_to_what_is_no_address_of_a_server_is_the_broker_s_fault(location: str) -> None:
    rules = RedirectRules(("http://broker:8080",), TargetValidator(("*",), ("*",), ("*",)))
    with pytest.raises(HttpRefused) as caught:
        await rules.target(URL("http://broker:8080/admin"), location)
    assert (caught.value.status, caught.value.kind) == (502, "redirect")


async def test_a_redirect_never_leaves_tls() -> None:
    rules = RedirectRules(("https://broker:8443", "http://broker:8080"), TargetValidator((), (), ()))
    with pytest.raises(HttpRefused, match="from https to http") as caught:
        await rules.target(URL("https://broker:8443/admin"), "http://broker:8080/admin")
    assert caught.value.status == 502
    assert str(await rules.target(URL("http://broker:8080/admin"), "https://broker:8443/admin")).startswith("https:")


@pytest.mark.parametrize("to_any_target", [True, False])
def test_own_credentials_follow_redirects_of_known_servers_only(to_any_target: bool) -> None:
    everywhere = TargetValidator(("*",), ("*",), ("8080",))
    rules = RedirectRules(("http://broker:8080",), everywhere, ("http://other:80/x",), to_any_target=to_any_target)
    broker, other, led_to = URL("http://broker:8080/a"), URL("http://other/x"), URL("http://led-to:8080/a")
    assert rules.trusted(broker, named_by_trusted=False)
    assert not rules.trusted(other, named_by_trusted=True)
    assert rules.trusted(led_to, named_by_trusted=True)
    assert rules.trusted(led_to, named_by_trusted=False) is to_any_target
    everywhere.apply(("*.brokers.example",), ("*",), ("8080",))
    assert rules.trusted(led_to, named_by_trusted=False)


# --- servers --------------------------------------------------------------------------------------


def test_servers_take_turns_and_one_that_failed_is_left_alone_for_a_second_at_most() -> None:
    clock = ManualClock()
    servers = Upstreams(("http://a/", "http://b"), clock, lambda: 0.0)
    assert [servers.in_turn()[0] for _ in range(4)] == ["http://a", "http://b", "http://a", "http://b"]
    asked = 0
    for _ in range(1000):
        clock.advance(0.01)
        if "http://a" in servers.in_turn():
            asked += 1
            servers.failed("http://a")
    # Ten seconds: 0.1, 0.2, 0.4, 0.8 and then once a second.
    assert 12 <= asked <= 15
    clock.advance(1.0)
    assert "http://a" in servers.in_turn()
    servers.worked("http://a")
    servers.failed("http://a")
    assert 0 < servers.seconds_to_wait <= 0.1 or servers.in_turn() == ["http://b"]


# --- lookups --------------------------------------------------------------------------------------

ANSWER = {"brokerUrl": "pulsar://b:6650", "brokerUrlTls": "pulsar+ssl://b:6651", "httpUrl": "http://b:8080"}


def written(
    port_of: dict[tuple[str, bool], int], host: str = "proxy", *, tls_to_brokers: bool = False
) -> dict[str, str]:
    answer = json.dumps(ANSWER).encode()
    lookup = lookup_in(answer, tls_to_brokers=tls_to_brokers)
    assert lookup is not None
    ports = port_of.get((lookup.broker, False)), port_of.get((lookup.broker, True))
    found: dict[str, str] = json.loads(rewritten(answer, lookup, host, ports, (80, None)))
    return found


def test_each_address_of_an_answer_is_one_of_this_proxy() -> None:
    assert written({("pulsar://b:6650", False): 1, ("pulsar://b:6650", True): 2}, "::1") == {
        "brokerUrl": "pulsar://[::1]:1",
        "nativeUrl": "pulsar://[::1]:1",
        "brokerUrlTls": "pulsar+ssl://[::1]:2",
        "brokerUrlSsl": "pulsar+ssl://[::1]:2",
        "httpUrl": "http://[::1]:80",
    }


def test_with_tls_to_brokers_the_port_leads_to_the_tls_address() -> None:
    found = written({("pulsar+ssl://b:6651", False): 1}, tls_to_brokers=True)
    assert found["brokerUrl"] == "pulsar://proxy:1"


@pytest.mark.parametrize(
    ("header", "host"),
    [("p:8080", "p"), ("p", "p"), ("[::1]:8080", "::1"), ("a.b-c:1", "a.b-c"), ("", ""), ("a/b", ""), ("a\r\nb", "")],
)
def test_the_host_that_a_client_asked_is_taken_only_if_it_is_one(header: str, host: str) -> None:
    assert host_of(header) == host


@pytest.mark.parametrize(
    ("status", "method", "expected"),
    [(307, "PUT", True), (308, "POST", True), (302, "GET", True), (303, "HEAD", True), (302, "POST", False),
     (304, "GET", False), (200, "GET", False)],
)  # fmt: skip
def test_redirects_that_keep_the_request_are_followed(status: int, method: str, expected: bool) -> None:
    assert follows(status, method) is expected
