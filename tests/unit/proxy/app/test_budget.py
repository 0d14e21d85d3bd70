import pytest

from proxy.app.memory.budget import (
    LINES,
    Load,
    kernels_choice,
    total_bytes,
    worst_case,
    worst_case_bytes,
    worst_case_parts,
)
from proxy.config.config import Config, ConfigError
from proxy.net.tcp_buffers import TcpBuffers
from tests.support.configured import configured

MIB = 1024 * 1024


def budget(**keys: object) -> tuple[dict[str, int], int]:
    config = configured(**keys)
    return {line.owner: line.limit_bytes for line in worst_case(config)}, worst_case_bytes(config)


# The defaults of the versions before the sums: each connection counts with the most that it may have.
UNBOUNDED = {"relayMemoryPoolMB": -1, "clientSocketSendMemoryMB": -1,
             "maxConcurrentLookupRequestMB": -1}  # fmt: skip


def test_the_sum_is_that_of_its_lines_and_a_connection_counts_once() -> None:
    for keys in ({"relayMemoryPoolMB": -1}, UNBOUNDED):
        lines, total = budget(**keys)
        kernel, relays = lines.pop("kernel send buffers"), lines.pop("relays, both directions stalled")
        assert total == sum(lines.values()) + max(kernel, relays)
    lines, total = budget(servicePortTls=6651)
    clients, relays = lines.pop("TLS connections"), lines.pop("TLS of relays")
    assert total == sum(lines.values()) + max(clients, relays)


def test_the_sum_of_the_defaults_fits_a_machine_of_4_gib_beside_its_system() -> None:
    lines, total = budget()
    assert total == sum(lines.values()) <= 3_000 * MIB


def test_each_owner_is_declared_once_and_each_line_names_keys_that_exist() -> None:
    owners = [line.owner for line in LINES]
    assert len(owners) == len(set(owners))
    known = {key.name for key in Config.keys()}  # noqa: SIM118
    assert {line.key for line in LINES} - {""} <= known


def test_a_heavier_load_fills_the_lines_of_the_lighter_ones_and_more() -> None:
    config = configured()
    rest, storm, worst = (worst_case_parts(config, load=load) for load in Load)
    assert rest.items() < storm.items() < worst.items()
    assert rest == {"process at rest": 64 * MIB, "connections at rest": 10_000 * 8192}
    # Relays are no part of a storm of topic lists.
    assert total_bytes(storm) == sum(storm.values()) == worst_case_bytes(config, load=Load.STORM)


def test_tls_counts_for_each_end_that_has_it() -> None:
    keys = {"maxConcurrentInboundConnections": 10, "brokerConnectionsTotal": 2, "servicePortTls": 6651}
    with_broker = {"tlsEnabledWithBroker": "true", "brokerServiceURLTLS": "pulsar+ssl://broker:6651"}
    plain = budget(maxConcurrentInboundConnections=10, brokerConnectionsTotal=2)[0]
    lines, total = budget(**keys)
    assert (lines["TLS connections"], lines["TLS of relays"]) == (10 * 45 * 1024, 10 * 25 * 1024)
    # A relay has two sessions, and what is sealed for either side is in another line.
    both, more = budget(**keys, **with_broker)
    assert (both["TLS connections"], both["TLS of relays"]) == (10 * 45 * 1024, 10 * (25 + 29) * 1024)
    assert both["broker connections"] - plain["broker connections"] == 2 * 49 * 1024
    threads = both["TLS of the relay threads"] - lines["TLS of the relay threads"]
    assert more - total == 10 * (25 + 29 - 45) * 1024 + 2 * 49 * 1024 + threads
    asked = {"tlsTrustCertsFilePath": "/ca.pem", "webServicePortTls": 8443, "maxHttpServerConnections": 3}
    lines, _ = budget(**keys, **asked)
    assert lines["TLS connections"] == 10 * (45 + 18) * 1024
    assert lines["TLS of the web ports"] == 3 * (45 + 18) * 1024
    # Each thread opens a read, and seals one.
    relaying, _ = budget(**keys, numIOThreads=2, relayBufferBytes=65_536)
    assert relaying["TLS of the relay threads"] == 2 * (4 * 64 + 128) * 1024
    assert "TLS of the relay threads" not in budget()[0]


def test_requests_passed_on_count_where_there_is_a_web_service_and_a_web_port() -> None:
    keys = {"maxConcurrentHttpRequests": 3, "httpOutputBufferSize": 1024, "httpMaxResponseHeaderSize": 2048}
    brokers = {"brokerWebServiceURL": "http://broker:8080"}
    assert "requests passed on" not in budget(**keys)[0]
    assert "requests passed on" not in budget(**keys, **brokers, webServicePort="")[0]
    assert budget(**keys, **brokers)[0]["requests passed on"] == 3 * (48 * 1024 + 2 * 2048 + 12 * 1024)


@pytest.mark.parametrize(
    ("key", "owner", "with_shares"),
    [
        ("maxTopicListInFlightHeapMemSizeMB", "decoded topic lists", 230),
        # Beside direct memory there are the shares of large requests, a quarter, and of large CONNECTs, an eighth.
        ("maxTopicListInFlightDirectMemSizeMB", "encoded topic lists", 305),
    ],
)
def test_a_limit_in_megabytes_counts_as_it_is(key: str, owner: str, with_shares: int) -> None:
    lines, total = budget(topicListMaxAnswerBytes=MIB)
    more, larger = budget(topicListMaxAnswerBytes=MIB, **{key: 300})
    assert (lines[owner], more[owner]) == (100 * MIB, 300 * MIB)
    assert larger - total == with_shares * MIB  # with the slack that docs/memory.md allows


def test_send_buffers_count_with_their_sum_where_that_is_less_than_all_of_them() -> None:
    lines, _ = budget(clientSocketSendMemoryMB=300)
    assert (lines["kernel send buffers"], lines["large kernel send buffers"]) == (10_000 * 32 * 1024, 300 * MIB)
    # Without a limit of connections the sum is all that bounds them.
    lines, _ = budget(clientSocketSendMemoryMB=300, maxConcurrentInboundConnections=0)
    assert lines["large kernel send buffers"] == 300 * MIB
    # A sum that all together do not reach bounds nothing, and costs nothing.
    lines, _ = budget(maxConcurrentInboundConnections=500)
    assert lines["kernel send buffers"] == 500 * 512 * 1024
    assert "large kernel send buffers" not in lines


def test_a_pool_below_one_read_of_each_thread_is_refused_with_the_key_to_change() -> None:
    with pytest.raises(ConfigError, match="relayMemoryPoolMB"):
        budget(relayBufferBytes=1 << 24, numIOThreads=16)


@pytest.mark.parametrize(
    "key",
    [
        "maxConcurrentInboundConnections",
        "brokerConnectionsTotal",
        "maxConcurrentLookupRequests",
    ],
)
def test_each_limit_that_bounds_memory_is_in_the_sum(key: str) -> None:
    assert budget(**{key: 20_000})[1] > budget(**{key: 10_000})[1]


def test_the_library_that_exports_counts_when_it_is_used() -> None:
    config = configured()
    with_it, without = list(worst_case(config, exports=True)), list(worst_case(config))
    (line,) = [line for line in with_it if line not in without]
    assert worst_case_bytes(config, exports=True) - worst_case_bytes(config) == line.limit_bytes > 0


def test_askers_of_the_admin_api_count_at_each_door_that_is_open() -> None:
    askers, rest = "askers of the admin API", budget(controlSocketPath="none")[1]
    for open_doors, keys in enumerate(
        ({"controlSocketPath": "none"}, {"controlSocketPath": ""}, {"adminApiAddress": "127.0.0.1:7070"})
    ):
        lines, total = budget(adminApiTokenFilePath="/token", **keys)
        assert lines.get(askers, 0) == open_doors * 10 * MIB
        assert total - rest == open_doors * 10 * MIB


OF_CLIENTS = "received bytes of relays, from clients"


@pytest.mark.parametrize(
    ("keys", "acts"),
    [
        ({}, False),
        ({"overloadThrottleEnabled": "true"}, True),
        ({"adaptivePublisherThrottlingEnabled": "true", "adaptivePublisherThrottlingObserveOnly": "true"}, False),
        (
            {
                "overloadThrottleEnabled": "true", "overloadThrottleObserveOnly": "true",
                "adaptivePublisherThrottlingEnabled": "true",
            },
            True,
        ),
    ],
)  # fmt: skip
def test_received_bytes_of_clients_are_bounded_once_while_a_throttle_acts_else_the_kernels_choice(
    keys: dict[str, str], acts: bool
) -> None:
    keys = keys | {"relaySocketMemoryMB": "-1"}
    lines, _ = budget(**keys)
    choice = kernels_choice(configured(**keys), TcpBuffers(send=1, receive=3))
    chosen = {line.owner: line.limit_bytes for line in choice}
    idle, _ = budget(relaySocketMemoryMB=-1)
    relays = "relays, both directions stalled"
    assert lines[relays] - idle[relays] == (2 * 10_000 * MIB if acts else 0)
    assert chosen.get(OF_CLIENTS) == (None if acts else 10_000 * 3)


@pytest.mark.parametrize(
    ("keys", "counted"),
    [
        ({"forwardAuthorizationCredentials": "true"}, False),
        ({"authenticationEnabled": "true", "authenticationProviders": "token"}, True),
        ({"authenticationEnabled": "true", "authenticationProviders": "basic"}, False),
        (
            {
                "authenticationEnabled": "true",
                "authenticationProviders": "basic",
                "forwardAuthorizationCredentials": "true",
            },
            True,
        ),
    ],
)
def test_credentials_of_clients_count_where_brokers_get_some(keys: dict[str, str], counted: bool) -> None:
    lines, total = budget(**keys)
    assert ("credentials to forward" in lines) is counted
    assert (total > budget(**{**keys, "forwardAuthorizationCredentials": "false"})[1]) is counted


def test_what_is_bounded_without_its_key_counts_with_the_constant() -> None:
    assert budget(maxTopicListInFlightDirectMemSizeMB=0)[0]["large frames before CONNECTED"] == 16 * MIB
    assert budget(clientSocketSendBufferBytes=0)[0]["broker connections"] == 256 * (20 * 1024 + MIB)
