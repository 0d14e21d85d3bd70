"""The memory of a container: the chart, the proxy's own sum and docs/capacity.md say the same, to the byte."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from helm_python import HelmError

from proxy.app.memory.budget import LINES, total_bytes, worst_case_parts
from proxy.config.config import Config
from proxy.config.keys.key import Key
from scripts.helm.render import GATEWAY, Render, read_values
from tests.helm.charts import BROKERS, gateway, proxy_container

MIB = 1024 * 1024
DEFAULTS = read_values(GATEWAY / "values.yaml")["configData"]
RANGE = re.compile(r"a whole number from (-?\d+) to (\d+).*")
FACTORS = {factor.name: factor for line in LINES for part in line.parts for factor in part.times
           if isinstance(factor, Key)}  # fmt: skip
EVERY_LINE = {
    "servicePortTls": 6651, "metricsPort": 9090, "tlsTrustCertsFilePath": "/t/ca", "webServicePortTls": 8443,
    "tlsEnabledWithBroker": True,
    "brokerServiceURLTLS": "pulsar+ssl://b:6651", "brokerWebServiceURLTLS": "https://b:8443",
    "authenticationEnabled": True, "authenticationProviders": "tls,token", "checkActiveBrokers": True,
    "proxyLogLevel": 2, "topicListFairness": "TENANT", "eventLogDirectory": "/pulsar/events",
    "eventLogTopic": "persistent://a/b/c", "topicListSpillDirectory": "/pulsar/lists/spill",
    "adminApiAddress": "127.0.0.1:7070", "adminApiTokenFilePath": "/t/a", "OTEL_SDK_DISABLED": False,
    "overloadThrottleEnabled": True, "adaptivePublisherThrottlingEnabled": True,
}  # fmt: skip
# Bounds in sum take the place of what each relay may hold.
UNBOUNDED = {**EVERY_LINE, "relaySocketMemoryMB": -1, "relayMemoryPoolMB": -1, "clientSocketSendMemoryMB": -1,
             "maxConcurrentLookupRequestMB": -1}  # fmt: skip
# Keys that switch a line off are set; words are read in any case.
FEWEST_LINES = {"controlSocketPath": "none", "topicListFairness": "FIFO", "proxyLogLevel": "0"}


def limits(bound: int) -> dict[str, int]:
    """Return the smallest (0) or the largest (1) value of each factor of the sum; a limit of 0 would be none."""
    found: dict[str, int] = {}
    for name, key in FACTORS.items():
        match = RANGE.fullmatch(key.kind.expected)
        assert match is not None, name
        found[name] = max(1, int(match.groups()[bound]))
    # A connection and a place for it: fewer are refused.
    found["brokerConnectionsTotal"] = max(2, found["brokerConnectionsTotal"])
    return found


def lines(keys: Mapping[str, Any]) -> dict[str, int]:
    """Return the proxy's own lines for values of the chart's `configData`."""
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value)
             for name, value in {**DEFAULTS, **BROKERS, **keys}.items() if not name.startswith("OTEL_")}  # fmt: skip
    return worst_case_parts(Config.load(overrides=texts), exports=keys.get("OTEL_SDK_DISABLED") is False)


def test_values_for_every_line_are_for_every_line() -> None:
    found = {*lines(EVERY_LINE), *lines(UNBOUNDED)}
    assert found == {line.owner for line in LINES}


@pytest.mark.parametrize(
    "keys",
    [{}, {**limits(0), **FEWEST_LINES}, {**limits(1), **EVERY_LINE}, {**limits(0), **UNBOUNDED}, UNBOUNDED],
    ids=["as they are", "fewest and smallest", "every line, largest", "unbounded, smallest", "unbounded"],
)
def test_the_chart_takes_the_proxys_own_sum_and_refuses_a_byte_less(keys: dict[str, Any]) -> None:
    expected = total_bytes(lines(keys))

    def asked(limit: int) -> Render:
        return gateway({"configData": keys, "memory": {"extra": 0, "limit": str(limit)}})

    assert proxy_container(asked(expected))["resources"]["limits"]["memory"] == str(expected)
    with pytest.raises(HelmError, match=f"memory.limit: got {expected - 1}, expected at least"):
        asked(expected - 1)


@pytest.mark.parametrize(("answer", "limits_mb"), [("", (1, 4096)), ("", (4096, 1)), (MIB, (4096, 4096))])
def test_the_chart_knows_the_largest_answer_that_the_proxy_reads(limits_mb: tuple[int, int], answer: Any) -> None:
    heap, direct = limits_mb
    sizes = {"maxTopicListInFlightHeapMemSizeMB": heap, "maxTopicListInFlightDirectMemSizeMB": direct}
    keys = {**sizes, "topicListMaxAnswerBytes": answer}
    expected = -(-total_bytes(lines(keys)) // MIB)
    container = proxy_container(gateway({"configData": keys, "memory": {"extra": 0}}))
    assert container["resources"]["requests"]["memory"] == f"{expected}Mi"


@pytest.mark.parametrize(
    "name", [name for name in FACTORS if "from 0 to" in FACTORS[name].kind.expected and FACTORS[name].default]
)
def test_no_memory_is_computed_where_a_factor_has_no_limit(name: str) -> None:
    with pytest.raises(HelmError, match=re.escape(f"configData.{name}: got 0 (no limit), expected a limit")):
        gateway({"configData": {name: 0}})
