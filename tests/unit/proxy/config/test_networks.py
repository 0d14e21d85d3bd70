"""What operators write for hosts and networks, with what the Java proxy takes it for (IPAddress 5.5.0, run once)."""

import asyncio
import ipaddress
from typing import Final

import pytest

from proxy.brokers.target import BrokerAddress, TargetValidator
from proxy.config.keys.key import snake_case
from proxy.config.keys.networks import is_loopback, networks_in
from proxy.core.errors import TargetRefused
from proxy.net.trusted_balancers import TrustedBalancers
from tests.support.configured import configured, refusal

# Each with its lowest and its highest address in the Java proxy, and how many addresses there are.
NETWORKS: Final = [
    ("10.0.*.*", "10.0.0.0", "10.0.255.255", 65536),
    ("10.*", "10.0.0.0", "10.255.255.255", 16777216),
    ("10.0-3.1.*", "10.0.1.0", "10.3.1.255", 1024),
    ("10.*.0.1", "10.0.0.1", "10.255.0.1", 256),
    ("*.*.*.*", "0.0.0.0", "255.255.255.255", 1 << 32),
    ("1::*:*", "1::", "1::ffff:ffff", 1 << 32),
    ("1:2:*", "1:2::", "1:2:ffff:ffff:ffff:ffff:ffff:ffff", 1 << 96),
    ("2001:db8::*", "2001:db8::", "2001:db8::ffff", 65536),
    ("1-2:3::", "1:3::", "2:3::", 2),
    ("1:2:3:4:5:6:7-8:*", "1:2:3:4:5:6:7:0", "1:2:3:4:5:6:8:ffff", 131072),
    ("*:*", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 1 << 128),
    ("10.0.0.0/255.0.0.0", "10.0.0.0", "10.255.255.255", 16777216),
    ("fe80::/10", "fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 1 << 118),
    ("10.0.0.5", "10.0.0.5", "10.0.0.5", 1),
]
KEYS = ("brokerProxyAllowedIPAddresses", "trustedLoadBalancerIPAddresses")


def allowed(validator: TargetValidator, address: str) -> bool:
    try:
        return asyncio.run(validator.resolve(BrokerAddress(address, 6650))) == [address]
    except TargetRefused:
        return False


@pytest.mark.threat("loose-network-spelling")
@pytest.mark.parametrize(("text", "lowest", "highest", "size"), NETWORKS)
def test_a_network_lets_in_what_it_does_in_the_java_proxy_and_nothing_else(
    text: str, lowest: str, highest: str, size: int
) -> None:
    config = configured(**dict.fromkeys(KEYS, text))
    # A live change comes the same way.
    validator = TargetValidator(["*"], ["192.0.2.1"], ["*"])
    validator.apply(["*"], config.broker_proxy_allowed_ip_addresses, ["*"])
    balancers = TrustedBalancers(config.trusted_load_balancer_ip_addresses)
    first, last = ipaddress.ip_address(lowest), ipaddress.ip_address(highest)
    for address in (first, last):
        assert allowed(validator, str(address))
        assert str(address) in balancers
    for address, more, end in ((first, -1, 0), (last, 1, (1 << first.max_prefixlen) - 1)):
        if int(address) != end:
            assert not allowed(validator, str(address + more))
            assert str(address + more) not in balancers
    assert sum(network.num_addresses for network in networks_in(text)) == size


# Programs that listen for both families show addresses so, and operators copy them.
@pytest.mark.parametrize("text", ["::ffff:10.0.0.0/111", "::ffff:a00-a01:*", "[::FFFF:10.1.2.3]"])
def test_a_network_of_ipv4_in_its_ipv6_form_lets_in_ipv4(text: str) -> None:
    validator, balancers = TargetValidator(["*"], [text], ["*"]), TrustedBalancers([text])
    assert allowed(validator, "10.1.2.3")
    assert "10.1.2.3" in balancers
    assert not allowed(validator, "10.2.0.0")
    assert "10.2.0.0" not in balancers


@pytest.mark.threat("loose-network-spelling")
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("text", "hint"),
    [
        # The Java proxy takes the address alone where others take the network.
        ("10.0.0.5/8", "10.0.0.5/8: write 10.0.0.0/8 or 10.0.0.5"),
        ("2001:db8::1/32", "2001:db8::1/32: write 2001:db8::/32 or 2001:db8::1"),
        ("10.0.0.0/0.255.255.255", "write 10.0.0.0/8"),
        # To the Java proxy these are 10.0.0.0, 0.0.0.10, 10.0.0.0-3 and 8.0.0.1: nobody means that.
        ("10.0", "(wrong: 10.0)"),
        ("10.0-3", "four parts"),
        ("010.0.0.1", "(wrong: 010.0.0.1)"),
        # What the Java proxy takes, and would be too many networks here, or is seldom written.
        ("*.*.2.1", "more than 256 networks: write fewer, as CIDR"),
        ("10.*.*.*/16", "write CIDR, or * and ranges, not both"),
        ("10.0.5-.1", "(wrong: 10.0.5-.1)"),
        ("10.0.0.3-1", "(wrong: 10.0.0.3-1)"),
        ("::ffff:10.0.*.*", "(wrong: ::ffff:10.0.*.*)"),
        # What no proxy takes.
        ("10.0.0.1-10.0.0.5", "four parts"),
        ("1:2:3:4:5:6:7:8:*", "eight"),
        ("1::2::*", "(wrong: 1::2::*)"),
        ("10.0.*.*.*", "four parts"),
        ("10.0.0.0/33", "(wrong: 10.0.0.0/33)"),
    ],
)
def test_what_could_let_in_more_than_was_meant_is_refused_with_what_to_write(key: str, text: str, hint: str) -> None:
    (problem,) = refusal(**{key: f"192.0.2.1,{text}"}).problems
    assert problem.key == key
    assert hint in problem.expected


LISTS = ("bindAddress", "webBindAddress", "metricsBindAddress")


@pytest.mark.parametrize("key", [*LISTS, "advertisedAddress"])
@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("[::]", "::"),
        ("[2001:DB8::1]", "2001:db8::1"),
        ("[fe80::1%eth0]", "fe80::1%eth0"),
        ("localhost", "localhost"),
        ("proxy_1.example.org", "proxy_1.example.org"),
        ("127.0.0.1", "127.0.0.1"),
    ],
)
def test_a_host_may_have_the_brackets_of_a_url(key: str, text: str, host: str) -> None:
    config = configured(**{"metricsPort": "0", key: text})
    assert getattr(config, snake_case(key)) == ((host,) if key in LISTS else host)


def test_hosts_of_both_families_may_stand_beside_each_other() -> None:
    config = configured(bindAddress="0.0.0.0, [::],::")
    assert config.bind_address == ("0.0.0.0", "::")


@pytest.mark.parametrize("key", [*LISTS, "advertisedAddress"])
@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("[::]:6650", "[::]:6650: the port has a key of its own, such as servicePort"),
        ("localhost:8080", "localhost:8080: the port has a key of its own"),
        ("*", "*: every address is 0.0.0.0,::"),
        ("[127.0.0.1]", "(wrong: [127.0.0.1])"),
        ("::]", "(wrong: ::])"),
        ("pulsar://proxy", "(wrong: pulsar://proxy)"),
        ("10.0.0.0/8", "(wrong: 10.0.0.0/8)"),
    ],
)
def test_what_is_no_host_is_refused_with_what_to_write(key: str, text: str, hint: str) -> None:
    (problem,) = refusal(**{"metricsPort": "0", key: text}).problems
    assert problem.key == key
    assert hint in problem.expected


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("::1%lo", True),
        ("::ffff:127.0.0.1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("fe80::1%lo", False),
        ("::ffff:10.0.0.1", False),
        ("localhost.p", False),
        ("", False),
    ],
)
def test_loopback_is_told_from_the_rest(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
