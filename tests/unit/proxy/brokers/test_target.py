import asyncio
from collections.abc import Collection, Iterable
from typing import Any

import pytest

from proxy.brokers.target import BrokerAddress, TargetValidator, parse_address, resolve
from proxy.core.errors import TargetRefused
from tests.support.loops.loops import run_on


class TestParsing:
    @pytest.mark.parametrize(
        ("text", "host", "port"),
        [
            ("broker-1:6650", "broker-1", 6650),
            ("pulsar://broker-1.example.com:6651", "broker-1.example.com", 6651),
            ("pulsar://broker-1:6650/", "broker-1", 6650),
            ("pulsar://broker-1", "broker-1", 6650),
            ("10.0.0.1:65535", "10.0.0.1", 65535),
            ("[::1]:6650", "::1", 6650),
            ("::1:6650", "::1", 6650),
            ("pulsar://[2001:db8::1]:6650", "2001:db8::1", 6650),
            ("pulsar://[2001:db8::1]", "2001:db8::1", 6650),
            ("my_broker:1", "my_broker", 1),
        ],
    )
    def test_host_and_port_are_found(self, text: str, host: str, port: int) -> None:
        assert parse_address(text) == BrokerAddress(host, port)

    @pytest.mark.threat("malformed-target")
    @pytest.mark.parametrize(
        "text",
        [
            "",
            "broker",
            ":6650",
            "broker:",
            "broker:0",
            "broker:65536",
            "broker:-1",
            "broker:6650x",
            "broker:\u0661\u0662",  # digits of another script
            "broker:" + "1" * 5000,
            "http://broker:8080",
            "pulsar://user@broker:6650",
            "pulsar://broker:6650/path",
            "broker:6650\r\nX: y",
            "bro ker:6650",
            "[::1]",
            "b\u00f6rse:6650",
        ],
    )
    def test_anything_else_is_refused(self, text: str) -> None:
        with pytest.raises(TargetRefused, match="is not host:port"):
            parse_address(text)

    def test_tls_is_refused_by_name(self) -> None:
        with pytest.raises(TargetRefused, match="asks for TLS"):
            parse_address("pulsar+ssl://broker:6651")

    def test_the_message_names_the_field_and_stays_short(self) -> None:
        with pytest.raises(TargetRefused, match=r"^brokerServiceUrl ") as caught:
            parse_address("/" * 10_000, key="brokerServiceUrl")
        assert len(str(caught.value)) < 300

    @pytest.mark.parametrize(
        ("address", "text"), [(BrokerAddress("b", 1), "b:1"), (BrokerAddress("::1", 6650), "[::1]:6650")]
    )
    def test_an_address_reads_as_it_is_written(self, address: BrokerAddress, text: str) -> None:
        assert str(address) == text
        assert parse_address(text) == address


def allowed(
    host: str,
    port: int = 6650,
    names: Iterable[str] = ("*",),
    addresses: Iterable[str] = ("*",),
    ports: Iterable[str] = ("6650", "6651"),
) -> list[str]:
    validator = TargetValidator(names, addresses, ports)
    return run_on(asyncio.new_event_loop, validator.resolve(BrokerAddress(host, port)))


class TestHosts:
    @pytest.mark.parametrize("pattern", ["*", "127.0.0.1", "127.*", "127.0.0.?", " 127.0.0.1 "])
    def test_a_host_that_matches_is_allowed(self, pattern: str) -> None:
        assert allowed("127.0.0.1", names=[pattern]) == ["127.0.0.1"]

    @pytest.mark.parametrize("pattern", ["broker", "*.example.com", "27.0.0.1", "127.0.0", ""])
    def test_a_host_that_does_not_match_is_refused(self, pattern: str) -> None:
        with pytest.raises(TargetRefused, match="brokerProxyAllowedHostNames"):
            allowed("127.0.0.1", names=[pattern])

    def test_case_does_not_matter(self) -> None:
        assert allowed("LOCALHOST", names=["LocalHost"], addresses=["127.0.0.0/8", "::1"])

    @pytest.mark.threat("pattern-ends-early")
    def test_a_wildcard_reaches_no_further_than_its_domain(self) -> None:
        with pytest.raises(TargetRefused):
            allowed("broker.example.com.evil.test", names=["*.example.com"])

    def test_no_pattern_allows_nothing(self) -> None:
        with pytest.raises(TargetRefused):
            allowed("127.0.0.1", names=[])


class TestPorts:
    @pytest.mark.threat("port-scan")
    def test_any_other_is_refused_before_the_name_is_looked_up(self) -> None:
        with pytest.raises(TargetRefused, match="target port 22 is not in brokerProxyAllowedTargetPorts"):
            allowed("no-such-host.invalid", 22)

    def test_a_star_allows_every_port(self) -> None:
        assert allowed("127.0.0.1", 22, ports=["*"])


def allowed_in_a_gateway(host: str, addresses: Iterable[str] = ("*",), configured: Iterable[str] = ()) -> list[str]:
    async def own(port: int) -> Collection[str]:
        return set(configured)

    validator = TargetValidator(["*"], addresses, ["*"], link_local=False)
    return run_on(asyncio.new_event_loop, validator.resolve(BrokerAddress(host, 6650), own))


class TestLinkLocal:
    @pytest.mark.threat("metadata-service")
    @pytest.mark.parametrize("host", ["169.254.169.254", "169.254.0.1", "fe80::1", "febf::1", "::ffff:169.254.169.254"])
    @pytest.mark.parametrize("addresses", [("*",), ("0.0.0.0/0", "::/0"), ("169.0.0.0/8", "fe00::/8")])
    def test_a_link_local_target_is_refused_in_a_gateway(self, host: str, addresses: tuple[str, ...]) -> None:
        with pytest.raises(TargetRefused, match="link-local"):
            allowed_in_a_gateway(host, addresses)

    @pytest.mark.parametrize(
        ("host", "network"),
        [("169.254.1.2", "169.254.1.0/24"), ("fe80::1", "fe80::/10"), ("169.254.1.2", "169.254.1.2")],
    )
    def test_a_link_local_network_of_the_list_is_allowed(self, host: str, network: str) -> None:
        assert allowed_in_a_gateway(host, ["*", network]) == [host]

    def test_a_configured_broker_is_allowed(self) -> None:
        assert allowed_in_a_gateway("169.254.1.2", configured=["169.254.1.2"]) == ["169.254.1.2"]

    @pytest.mark.parametrize("host", ["169.253.255.255", "169.255.0.0", "fec0::1", "127.0.0.1"])
    def test_others_are_as_before(self, host: str) -> None:
        assert allowed_in_a_gateway(host) == [host]

    def test_a_sidecar_is_not_asked(self) -> None:
        assert allowed("169.254.169.254") == ["169.254.169.254"]


class TestAddresses:
    def test_a_name_is_judged_by_what_it_resolves_to(self) -> None:
        with pytest.raises(TargetRefused, match="no address of 'localhost'"):
            allowed("localhost", addresses=["10.0.0.0/8"])

    @pytest.mark.threat("name-of-inner-address")
    def test_only_the_allowed_addresses_of_a_name_are_given(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def two(target: BrokerAddress) -> list[str]:
            return ["10.0.0.1", "192.0.2.1", "10.0.0.2"]

        monkeypatch.setattr("proxy.brokers.target.resolve", two)
        assert allowed("broker", addresses=["10.0.0.0/8"]) == ["10.0.0.1", "10.0.0.2"]

    @pytest.mark.threat("address-in-disguise")
    def test_a_numeric_disguise_does_not_help(self) -> None:
        with pytest.raises(TargetRefused):
            allowed("2130706433", addresses=["10.0.0.0/8"])  # 127.0.0.1 as one number


class TestResolving:
    def resolved(self, host: str) -> list[str]:
        return run_on(asyncio.new_event_loop, resolve(BrokerAddress(host, 6650)))

    def test_an_address_needs_no_look_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def no_lookup(*_: Any) -> None:
            raise AssertionError("an address was looked up")

        monkeypatch.setattr("socket.getaddrinfo", no_lookup)
        assert self.resolved("192.0.2.7") == ["192.0.2.7"]

    def test_each_address_of_a_name_is_given_once(self) -> None:
        found = self.resolved("localhost")
        assert len(found) == len(set(found))
        assert set(found) <= {"127.0.0.1", "::1"}

    @pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".test", "x" * 300, ":"])
    def test_a_host_that_can_be_none_is_refused(self, host: str) -> None:
        with pytest.raises(TargetRefused):
            self.resolved(host)
