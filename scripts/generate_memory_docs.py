"""Write the figures of memory that docs/memory.md, docs/capacity.md and README.md have, out of the proxy's own budget.

A page has what its marks ask for; its prose is written by hand.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from proxy.app.memory.budget import (
    LINES,
    MIB,
    Condition,
    Derived,
    Fact,
    Given,
    Is,
    Line,
    Load,
    Part,
    worst_case_bytes,
    worst_case_parts,
)
from proxy.config.config import Config
from proxy.config.keys.key import Key
from scripts.generated import ROOT
from scripts.helm.render import GATEWAY, LIBRARY, read_values

PAGES: Final = (ROOT / "docs/memory.md", ROOT / "docs/capacity.md", ROOT / "README.md")
BEGIN: Final = "<!-- memory: {}; written by scripts/generate_memory_docs.py, do not edit -->"
END: Final = "<!-- memory: end -->"
_BLOCK: Final = re.compile(f"{BEGIN.replace('{}', '(.+?)')}\n.*?{END}", re.DOTALL)
_BROKERS: Final = {"brokerServiceURL": "pulsar://pulsar-broker:6650"}
_FULL: Final = {Load.REST: "at rest", Load.STORM: "storm", Load.WORST: "worst case"}
_FACTS: Final = {
    Fact.EXPORTS: "with an OpenTelemetry collector",
    Fact.WEB_TARGETS: "with web services to pass requests on to",
    Fact.FORWARDS: "with `authenticationEnabled`, unless `forwardAuthorizationCredentials=false`",
    Fact.RELAY_POOL: "with `relayMemoryPoolMB`",
    Fact.NO_RELAY_POOL: "unless `relayMemoryPoolMB`",
    Fact.SOCKET_BOUND: "with `relaySocketMemoryMB`",
    Fact.NO_SOCKET_BOUND: "unless `relaySocketMemoryMB`",
    Fact.SEND_MEMORY: "with `clientSocketSendMemoryMB`",
    Fact.NO_SEND_MEMORY: "unless `clientSocketSendMemoryMB`",
    Fact.COMMAND_BYTES: "with `maxConcurrentLookupRequestMB`",
    Fact.NO_COMMAND_BYTES: "unless `maxConcurrentLookupRequestMB`",
    Fact.THROTTLE_ACTS: "while `overloadThrottleEnabled` or `adaptivePublisherThrottlingEnabled` acts",
}
_MB: Final = 1_000_000
# docs/capacity.md says where these come from.
STORM_SECONDS: Final = 25
MOST_CLIENTS: Final = 10_000
LEAST_LIMIT_MB: Final = 100
NAME_BYTES: Final = 100


_LEVERS: Final[Mapping[tuple[Key[Any], ...], str]] = {
    (Config.client_socket_send_memory_mb,): "large answers wait, or leave in small steps, if many read slowly",
    (Config.relay_memory_pool_mb,): "relays whose peers read slowly are read in turns sooner",
    (Config.relay_socket_memory_mb,): "relays that stand still are ended sooner",
    (Config.max_concurrent_inbound_connections,): "more clients are refused",
    (Config.max_concurrent_lookup_requests,): "more lookups get TooManyRequests; lists wait",
    (Config.broker_connections_total,): "fewer brokers, principals at once",
    (Config.max_http_server_connections,): "fewer connections to the web ports",
    (Config.topic_list_max_answer_bytes,): "larger answers are skipped with an error",
}


# What a machine of 4 GiB can hold beside its system with web services.
_ON_4_GIB: Final[tuple[Mapping[Key[Any], int], ...]] = (
    {Config.max_concurrent_http_requests: 256, Config.max_http_server_connections: 512},
)


class Rate(NamedTuple):
    """A pod's pace in a storm."""

    bytes_per_second: int
    lists_per_second: int


EQUAL: Final = Rate(700 * _MB, 2_500)
DISTINCT: Final = Rate(230 * _MB, 1_000)


class Pod(NamedTuple):
    """A configuration, and the memory that its container has beside the sum of all limits."""

    config: Config
    extra_bytes: int

    def bytes_at(self, load: Load) -> int:
        """Return the sum of the lines that a load can fill."""
        return worst_case_bytes(self.config, load=load)

    @property
    def container_mib(self) -> int:
        """Return request and limit of memory, as the charts compute them."""
        return -(-(self.bytes_at(Load.WORST) + self.extra_bytes) // MIB)


def pod(chart: Path | None, changes: Mapping[str, Any]) -> Pod:
    """Return a pod with the default values of a chart, or of the proxy alone, and some changes of keys."""
    values: Mapping[str, Any] = read_values(chart / "values.yaml") if chart else {}
    # A value of its own in the sidecar's chart, which is a line of the sum.
    own = {name: values[name] for name in (Config.metrics_port.name,) if values.get(name)}
    keys = {**_BROKERS, **own, **values.get("configData", {}), **changes}
    extra = int(values["memory"]["extra"].removesuffix("Mi")) * MIB if chart else 0
    return Pod(Config.load(overrides={name: str(value) for name, value in keys.items()}), extra)


def storm_keys(clients: int, limit_mb: int = LEAST_LIMIT_MB) -> dict[str, int]:
    """Return the keys that docs/capacity.md advises for the clients of a gateway's pod."""
    limits = dict.fromkeys(("maxTopicListInFlightHeapMemSizeMB", "maxTopicListInFlightDirectMemSizeMB"), limit_mb)
    queues = {f"{name.removesuffix('MB')}PermitsAcquireQueueSize": 2 * clients for name in limits}
    most = {"maxConcurrentInboundConnections": clients, "maxConcurrentLookupRequests": 2 * clients}
    return {**limits, **queues, **most}


def sidecar_keys(limit_mb: int, connections: int) -> dict[str, int]:
    """Return the keys of a smaller sidecar than the chart's."""
    limits = dict.fromkeys(("maxTopicListInFlightHeapMemSizeMB", "maxTopicListInFlightDirectMemSizeMB"), limit_mb)
    most = {"maxConcurrentInboundConnections": connections, "maxConcurrentLookupRequests": 5 * connections // 2}
    return {**limits, **most}


# --- the table of lines --------------------------------------------------------------------------


def lines() -> Iterator[str]:
    """Yield a row for each line of the budget, with its formula and its size in three configurations."""
    shown = [pod(None, {}), pod(GATEWAY, {}), pod(LIBRARY, {})]
    parts = [worst_case_parts(each.config) for each in shown]
    yield "| line | full | formula | proxy's defaults | gateway chart's | sidecar chart's |"
    yield "|---|---|---|--:|--:|--:|"
    for line in LINES:
        sizes = " | ".join(_mib(each[line.owner]) if line.owner in each else "-" for each in parts)
        yield f"| {line.owner} | {_FULL[line.load]} | {formula(line)} | {sizes} |"
    sums = " | ".join(f"**{_mib(each.bytes_at(Load.WORST))}**" for each in shown)
    yield f"| **sum** | | of lookup connections and relays the larger | {sums} |"


def formula(line: Line) -> str:
    """Return the sum of a line's parts in words; parts with the same conditions stand together."""
    groups = []
    for conditions, parts in groupby(line.parts, key=lambda part: part.when):
        terms = " + ".join(_product(part, line.divided_by) for part in parts)
        groups.append(f"{terms} {', '.join(map(_condition, conditions))}".strip())
    return "; ".join(groups)


def _product(part: Part, divided_by: int) -> str:
    names = [f"`{factor.name}`" if isinstance(factor, Key) else _derived(factor) for factor in part.times]
    units = {factor.unit for factor in part.times if isinstance(factor, Key)}
    if "MiB" in units:
        number = f"{part.each // MIB}" if part.each >= MIB else f"1/{MIB // part.each}"
    elif "bytes" in units or Derived.ANSWER_LIMIT in part.times:
        number = f"{part.each}"
    else:
        number = _size(part.each)
    if divided_by == 100:
        return f"{number} % of {' x '.join(names)}"
    return " x ".join([*([] if number == "1" else [number]), *names])


def _derived(quantity: Derived) -> str:
    return {
        Derived.ANSWER_LIMIT: "`topicListMaxAnswerBytes` (empty: the smaller limit)",
        Derived.RELAY_READERS: "relay threads",
    }[quantity]


def _condition(condition: Condition) -> str:
    match condition:
        case Fact():
            return _FACTS[condition]
        case Given(keys):
            return f"with {' or '.join(f'`{key.name}`' for key in keys)}"
        case Is(key, word, holds):
            value = f"`{key.name}`" if word in ("true", "") else f"`{key.name}={word}`"
            return f"{'with' if holds is bool(word) else 'unless'} {value}"


def _size(size: int) -> str:
    for unit, name in ((MIB, "MiB"), (1024, "KiB")):
        if size >= unit and size * 100 % unit == 0:
            return f"{size / unit:g} {name}"
    return f"{size} bytes"


def _mib(size: int) -> str:
    return f"{size / MIB:,.1f}"


# --- the figures ---------------------------------------------------------------------------------


def figures() -> Iterator[str]:
    """Yield the memory of each way to run the proxy: at rest, in a storm, at most."""
    ways = (("the proxy with all its defaults", None), ("a pod of the gateway chart", GATEWAY),
            ("a sidecar of the sidecar chart", LIBRARY))  # fmt: skip
    yield "| MiB | clients | at rest, all connected | a storm, all readers slow | every limit at once | container |"
    yield "|---|--:|--:|--:|--:|--:|"
    for name, chart in ways:
        each = pod(chart, {})
        clients = each.config.max_concurrent_inbound_connections
        yield f"| {name} | {clients:,} | {_loads(each)} | {each.container_mib:,} |"


def small() -> Iterator[str]:
    """Yield a row for each step from all defaults to what a machine that is sold as 4 GiB can hold."""
    yield "| keys, each row with those above | every limit at once | the same with `brokerWebServiceURL` |"
    yield "|---|--:|--:|"
    web = {Config.broker_web_service_url.name: "http://pulsar-broker:8080"}
    keys: dict[str, Any] = {}
    for more in ({}, *_ON_4_GIB):
        keys |= {key.name: value for key, value in more.items()}
        names = ", ".join(f"`{key.name}={value}`" for key, value in more.items())
        sums = (f"{pod(None, {**keys, **each}).bytes_at(Load.WORST) / MIB:,.0f}" for each in ({}, web))
        yield f"| {names or 'all defaults'} | {' | '.join(sums)} |"


def pods() -> Iterator[str]:
    """Yield a row for each size of a gateway's pod."""
    yield "| clients a pod | at rest | a storm, all readers slow | every limit at once | container |"
    yield "|--:|--:|--:|--:|--:|"
    for clients in (100, 500, 1_000, 2_000, 5_000, MOST_CLIENTS):
        each = pod(GATEWAY, storm_keys(clients))
        yield f"| {clients:,} | {_loads(each)} | {each.container_mib:,} |"


def sidecars() -> Iterator[str]:
    """Yield a row for each size of a sidecar; the first is the chart's own."""
    yield "| limits | connections | requests | at rest | a storm, all readers slow | every limit at once | container |"
    yield "|--:|--:|--:|--:|--:|--:|--:|"
    for changes in ({}, sidecar_keys(16, 200), sidecar_keys(16, 20)):
        each = pod(LIBRARY, changes)
        config = each.config
        limit = config.max_topic_list_in_flight_heap_mem_size_mb
        most = f"{config.max_concurrent_inbound_connections:,} | {config.max_concurrent_lookup_requests:,}"
        yield f"| {limit} + {limit} | {most} | {_loads(each)} | {each.container_mib:,} |"


def levers() -> Iterator[str]:
    """Yield a row for each way to a smaller container: the chart's value in place of the proxy's default."""
    yield "| key | from | to | takes off | price |"
    yield "|---|--:|--:|--:|---|"
    chart, before = read_values(GATEWAY / "values.yaml")["configData"], pod(None, {})
    for keys, price in _LEVERS.items():
        changes = {key.name: chart.get(key.name, 16 * MIB) for key in keys}
        saved = before.bytes_at(Load.WORST) - pod(None, changes).bytes_at(Load.WORST)
        names = ", ".join(f"`{name}`" for name in changes)
        defaults = ", ".join(key.default_text or "empty" for key in keys)
        after = ", ".join(str(value) for value in changes.values())
        yield f"| {names} | {defaults} | {after} | {saved / MIB:,.0f} | {price} |"


def _loads(each: Pod) -> str:
    return " | ".join(f"{each.bytes_at(load) / MIB:,.0f}" for load in Load)


def storms() -> Iterator[str]:
    """Yield a row for each storm: the pods that answer it in time, and their containers."""
    yield "| clients | list | in all | equal: pods | container | distinct: pods | container | names/s |"
    yield "|--:|--:|--:|--:|--:|--:|--:|--:|"
    for clients in (1_000, 5_000, 20_000):
        for list_bytes, list_text in ((_MB // 10, "100 KB"), (_MB, "1 MB"), (5 * _MB, "5 MB")):
            limit_mb = max(LEAST_LIMIT_MB, 4 * list_bytes // _MB)
            in_pods = (f"{count} | {container:,} MiB" for count, container in (
                _for_storm(rate, clients, list_bytes, limit_mb) for rate in (EQUAL, DISTINCT)))  # fmt: skip
            names = clients * list_bytes // NAME_BYTES // STORM_SECONDS
            volume = f"{clients * list_bytes / 1_000 / _MB:g} GB"
            yield f"| {clients:,} | {list_text} | {volume} | {' | '.join(in_pods)} | {names:,} |"


def _for_storm(rate: Rate, clients: int, list_bytes: int, limit_mb: int) -> tuple[int, int]:
    """Return the pods that a storm needs, and the MiB of each container."""
    needed = max(
        -(-clients * list_bytes // (rate.bytes_per_second * STORM_SECONDS)),
        -(-clients // (rate.lists_per_second * STORM_SECONDS)),
        -(-clients // MOST_CLIENTS),
    )
    return needed, pod(GATEWAY, storm_keys(-(-clients // needed), limit_mb)).container_mib


BLOCKS: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    "lines": lines,
    "figures": figures,
    "small": small,
    "pods": pods,
    "sidecars": sidecars,
    "levers": levers,
    "storms": storms,
}


def written(found: re.Match[str]) -> str:
    return "\n".join((BEGIN.format(found[1]), *BLOCKS[found[1]](), END))


def files() -> Mapping[Path, str]:
    return {page: _BLOCK.sub(written, page.read_text(encoding="utf-8")) for page in PAGES}
