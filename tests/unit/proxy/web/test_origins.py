"""Which requests of web pages are served."""

import pytest

from proxy.web.http.errors import HttpRefused
from proxy.web.http.origins import OriginRules
from proxy.web.http.paths import origin_form

CROSS_SITE = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site", "Host": "p:8080"}


def served(rules: OriginRules, method: str = "POST", **headers: str) -> bool:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        rules.check_host(given)
        rules.check_site(method, given)
    except HttpRefused:
        return False
    return True


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, True),
        ({"Host": "p"}, True),
        ({"Host": "p:8080", "Origin": "http://p:8080"}, True),
        ({"Host": "P:8080", "Origin": "https://p:8080"}, True),
        ({"Host": "p:8080", "Origin": "http://p"}, False),
        ({"Host": "p:8080", "Origin": "http://evil.example"}, False),
        ({"Host": "p:8080", "Origin": "null"}, False),
        ({"Origin": "null"}, False),
        ({"Host": "p:8080", "Sec-Fetch-Site": "same-origin", "Origin": "http://p:8080"}, True),
        # A balancer may have changed the name: the browser knows better.
        ({"Host": "inner", "Sec-Fetch-Site": "same-origin", "Origin": "https://p"}, True),
        ({"Host": "p:8080", "Sec-Fetch-Site": "none"}, True),
        ({"Host": "p:8080", "Sec-Fetch-Site": "same-site"}, False),
        ({"Host": "p:8080", "Sec-Fetch-Site": "cross-site"}, False),
        ({"Host": "p:8080", "Sec-Fetch-Site": "of-tomorrow"}, False),
        (CROSS_SITE, False),
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_only_pages_of_the_own_origin_and_programs_change_anything(
    method: str, headers: dict[str, str], expected: bool
) -> None:
    assert served(OriginRules(), method, **headers) is expected


def test_reading_is_free_but_opening_a_websocket_is_not() -> None:
    for method in ("GET", "HEAD", "OPTIONS"):
        assert served(OriginRules(), method, **CROSS_SITE)
    assert not served(OriginRules(), "GET", Upgrade="websocket", **CROSS_SITE)
    assert served(OriginRules(), "GET", Upgrade="websocket", Host="p")


def test_listed_origins_may_and_a_star_is_all() -> None:
    rules = OriginRules(("*",), ("https://Console.example",))
    assert served(rules, Origin="https://console.example", Sec_Fetch_Site="cross-site", Host="p")
    assert not served(rules, Origin="http://console.example", Sec_Fetch_Site="cross-site", Host="p")
    assert served(OriginRules(("*",), ("*",)), **CROSS_SITE)


@pytest.mark.threat("malformed-host")
@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("pulsar.example.org", True),
        ("PULSAR.example.org.:8080", True),
        ("a.inner.example", True),
        ("localhost:8080", False),
        ("evil.example", False),
        ("pulsar.example.org.evil.example", False),
        ("10.0.0.1:8080", True),
        ("[::1]:8080", True),
        ("", True),
        ("evil.example/", False),
        ("10.0.0.1.evil.example", False),
        ("pulsar.example.org:80:evil", False),
        ("pulsar.example.org:evil", False),
        ("pulsar.example.org:", True),
        ("10.0.0.1:80:evil", False),
        ("[::1]evil", False),
        ("[::1]:80:evil", False),
        ("[pulsar.example.org]", False),
    ],
)
def test_only_listed_names_are_served_and_every_address(host: str, expected: bool) -> None:
    rules = OriginRules(("pulsar.example.org", "*.inner.example"))
    assert served(rules, "GET", Host=host) is expected
    assert served(OriginRules(), "GET", Host=host)


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
