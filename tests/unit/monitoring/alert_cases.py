"""Series for which each alert fires, and neighbours of them for which it must not.

Rule: values stand close to the threshold on both sides, so that a rule with another one fails. `S` in a series is the
place of the labels that every sample of one proxy has.
"""

from dataclasses import dataclass, field

LABELS = {"cluster": "blue", "job": "proxy", "instance": "10.0.0.7:8080"}
LIST = "pulsar_proxy_topic_list_"
ANSWERS = "pulsar_proxy_lists_answers_total"
MIB = 1024 * 1024
DAY = 86_400

Series = dict[str, str]


@dataclass(frozen=True)
class Case:
    """What fires an alert: its expression holds first at `begins_seconds`, and its text is compared at `told_seconds`.

    At `over_seconds` it fires no more, if it ends at all. None of `silent` fires it. `labels` are those that the alert
    has besides the proxy's; an empty one it has not.
    """

    alert: str
    severity: str
    fires: Series
    summary: str
    silent: tuple[Series, ...]
    begins_seconds: int = 0
    told_seconds: int = 1800
    over_seconds: int | None = None
    labels: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.alert}-{self.severity}"


def steady(number: float) -> str:
    """A gauge that stands still for an hour."""
    return f"{number}x120"


def growing(per_minute: float) -> str:
    """A counter that grows for an hour, sampled twice a minute."""
    return f"0+{per_minute / 2}x120"


def grown(per_minute: float) -> str:
    """A counter that grows for half an hour, and stands still."""
    return f"0+{per_minute / 2}x60 {30 * per_minute}x60"


def _use(used: float, limit: float, memory: str = "heap") -> Series:
    return {f"{LIST}{memory}_memory_used_bytes": steady(used), f"{LIST}{memory}_memory_limit_bytes": steady(limit)}


def _queue(size: int, most: int) -> Series:
    return {f"{LIST}heap_queue_size": steady(size), f"{LIST}heap_queue_max_size": steady(most)}


def _wait(quantile: str, millis: float) -> Series:
    return {f'{LIST}heap_wait_time_ms{{S,quantile="{quantile}"}}': steady(millis)}


def _answers(**per_minute: float) -> Series:
    return {f'{ANSWERS}{{S,outcome="{outcome}"}}': growing(rate) for outcome, rate in per_minute.items()}


def _answered(**per_minute: float) -> Series:
    return {f'{ANSWERS}{{S,outcome="{outcome}"}}': grown(rate) for outcome, rate in per_minute.items()}


# From 23 minutes on there is more of all: 3 % are refused of few, then nearly 5 % of many.
BUSIER = {
    f'{ANSWERS}{{S,outcome="answered"}}': "0+150x46 7875+975x73",
    f'{ANSWERS}{{S,outcome="refused_heap"}}': "0+5x46 277+47x73",
}
REJECTED = (
    "pulsar_proxy_rejected_connections_total",
    "pulsar_proxy_rejected_lookup_requests_total",
    "pulsar_proxy_rejected_partitions_metadata_requests_total",
    "pulsar_proxy_rejected_get_topics_of_namespace_requests_total",
    "pulsar_proxy_http_lists_refused_total",
)


def _rejected(growth: str = "0x120", which: str = REJECTED[0]) -> Series:
    return {name: growth if name == which else "0x120" for name in REJECTED}


def _readers(stalled: int, writers: int, direct_used: int, waiting: int = 0) -> Series:
    readers = {
        "pulsar_proxy_client_stalled_readers": steady(stalled),
        "pulsar_proxy_client_writers": steady(writers),
        "pulsar_proxy_lists_unproven_readers_waiting": steady(waiting),
    }
    return readers | _use(direct_used, 100, "direct")


def _memory(resident: int, kernel: int, limit: int | None, machine: int | None = None) -> Series:
    found = {
        "pulsar_proxy_memory_resident_bytes": steady(resident),
        "pulsar_proxy_client_writers_kernel_bytes": steady(kernel),
    } | _machine(machine)
    return found if limit is None else found | {"pulsar_proxy_memory_container_limit_bytes": steady(limit)}


def _machine(machine: int | None) -> Series:
    return {} if machine is None else {"pulsar_proxy_memory_machine_bytes": steady(machine)}


def _budget(budget: int, limit: int | None, machine: int | None = None) -> Series:
    found = {"pulsar_proxy_memory_budget_bytes": steady(budget)} | _machine(machine)
    return found if limit is None else found | {"pulsar_proxy_memory_container_limit_bytes": steady(limit)}


def _expiry(seconds: float) -> Series:
    return {'pulsar_proxy_tls_cert_expiry_seconds{S,cert="server"}': steady(seconds)}


def _starts(times: str, build_info: bool = True) -> Series:
    found = {"process_start_time_seconds": times}
    return found | {'pulsar_proxy_build_info{S,version="1"}': steady(1)} if build_info else found


def _lag(quantile: str, seconds: float) -> Series:
    return {f'pulsar_proxy_event_loop_lag_seconds{{S,quantile="{quantile}"}}': steady(seconds)}


def _age(seconds: float) -> Series:
    return {'pulsar_proxy_controller_age_seconds{S,controller="clock"}': steady(seconds)}


BUILD = 'pulsar_proxy_build_info{S,version="1"}'
OTHER = 'pulsar_proxy_build_info{cluster="blue",job="proxy",instance="10.0.0.8:8080",version="1"}'

CASES = (
    Case(
        "PulsarProxyHeapMemoryHigh", "warning", _use(81, 100),
        "topic lists hold 81% of the heap limit of 10.0.0.7:8080",
        (_use(80, 100), _use(99, 100, "direct"), _use(0, 0)),
    ),
    Case(
        "PulsarProxyHeapQueueNearFull", "critical", _queue(91, 100),
        "the queue for heap memory of 10.0.0.7:8080 is 91% full",
        (_queue(90, 100), _queue(0, 0)),
    ),
    Case(
        "PulsarProxyHeapTimeouts", "critical", {f"{LIST}heap_timeout_total": growing(61.2)},
        "1.02 topic lists a second get no heap memory in time from 10.0.0.7:8080",
        ({f"{LIST}heap_timeout_total": growing(60)}, {f"{LIST}direct_timeout_total": growing(600)}),
        begins_seconds=300,
    ),
    Case(
        "PulsarProxyHeapWaitsLong", "warning", _wait("0.99", 10_001),
        "a topic list in a hundred waits 10001 ms or longer for heap memory of 10.0.0.7:8080",
        (_wait("0.99", 10_000), _wait("1.0", 25_000)),
        labels={"quantile": "0.99"},
    ),
    Case(
        "PulsarProxyListsRefused", "warning",
        _answers(answered=1000, failed=0) | _answered(refused_direct=6, timed_out=6),
        "0.20 topic lists a second are refused or time out at 10.0.0.7:8080",
        (_answers(answered=1000, refused_heap=0, failed=60, cancelled=60),),
        begins_seconds=30,
        over_seconds=2100,
    ),
    Case(
        "PulsarProxyListsRefused", "critical",
        _answers(answered=949) | _answered(refused_heap=21, refused_direct=11, timed_out=19),
        "more than 5 % of the topic lists are refused or time out at 10.0.0.7:8080",
        (_answers(answered=951, refused_heap=49), _answers(answered=0, refused_heap=0), BUSIER),
        begins_seconds=30,
        over_seconds=1830,
    ),
    Case(
        "PulsarProxyListsRefused", "critical", _answers(answered=500) | _answered(refused_heap=500),
        "more than 5 % of the topic lists are refused or time out at 10.0.0.7:8080",
        (),
        begins_seconds=30,
        over_seconds=2100,
    ),
    *(
        Case(
            "PulsarProxyClientsRejected", "warning", _rejected(grown(6), which),
            "10.0.0.7:8080 turns away 0.10 connections and requests a second, for their number",
            (_rejected(),),
            begins_seconds=30,
            over_seconds=2100,
        )
        for which in REJECTED
    ),
    Case(
        "PulsarProxyStalledReaders", "warning", _readers(51, 100, 81),
        "51 clients of 10.0.0.7:8080 take nothing of their answers, and others wait for their memory",
        (_readers(50, 100, 81), _readers(51, 100, 80), _readers(0, 0, 99), _readers(50, 100, 50, waiting=1)),
    ),
    Case(
        "PulsarProxyStalledReaders", "warning", _readers(51, 100, 50, waiting=1),
        "51 clients of 10.0.0.7:8080 take nothing of their answers, and others wait for their memory",
        (_readers(51, 100, 50),),
    ),
    Case(
        "PulsarProxyNoBroker", "critical",
        {
            'pulsar_proxy_brokers{S,state="up"}': steady(0), 'pulsar_proxy_brokers{S,state="down"}': steady(1),
            'pulsar_proxy_brokers{S,state="unknown"}': "1x9 0x110",
        },
        "10.0.0.7:8080 can reach no broker",
        (
            # A proxy that probes no broker before a client asks, or that has just started.
            {'pulsar_proxy_brokers{S,state="up"}': steady(0), 'pulsar_proxy_brokers{S,state="unknown"}': steady(1)},
            {'pulsar_proxy_brokers{S,state="up"}': steady(1), 'pulsar_proxy_brokers{S,state="down"}': steady(3)},
            {'pulsar_proxy_brokers{S,state="up"}': steady(1), 'pulsar_proxy_brokers{S,state="down"}': steady(0)},
        ),
        begins_seconds=300,
    ),
    Case(
        "PulsarProxyBrokerDown", "warning", {'pulsar_proxy_brokers{S,state="down"}': steady(2)},
        "10.0.0.7:8080 cannot reach 2 of its brokers",
        ({'pulsar_proxy_brokers{S,state="up"}': steady(2), 'pulsar_proxy_brokers{S,state="down"}': steady(0)},),
        labels={"state": "down"},
    ),
    Case(
        "PulsarProxyDown", "critical",
        {'up{job="proxy",instance="10.0.0.7:8080"}': "1x9 0x110", BUILD: "1x9 stale"},
        "10.0.0.7:8080 of the job proxy cannot be scraped",
        (
            {'up{job="proxy",instance="10.0.0.7:8080"}': steady(1), BUILD: steady(1)},
            # A pod that was scaled away is no target any more.
            {'up{job="proxy",instance="10.0.0.7:8080"}': "1x9 stale", BUILD: "1x9 stale"},
            {'up{job="broker",instance="10.0.0.9:8080"}': "1x9 0x110", BUILD: steady(1)},
            {'up{job="proxy",namespace="other",instance="10.0.0.9:8080"}': "1x9 0x110", BUILD: steady(1)},
        ),
        begins_seconds=300,
        labels={"cluster": ""},
    ),
    Case(
        # It was seen last a day ago: who is still told of it has heard it for a day.
        "PulsarProxyDown", "critical",
        {'up{job="proxy",instance="10.0.0.7:8080"}': f"1x9 0x{DAY // 30 + 60}", BUILD: "1x9 stale"},
        "10.0.0.7:8080 of the job proxy cannot be scraped",
        (),
        begins_seconds=300,
        over_seconds=270 + DAY + 30,
        labels={"cluster": ""},
    ),
    Case(
        # It never came up: only its neighbours tell that it is a proxy.
        "PulsarProxyDown", "critical",
        {'up{job="proxy",instance="10.0.0.7:8080"}': "0x120", OTHER: steady(1)},
        "10.0.0.7:8080 of the job proxy cannot be scraped",
        ({'up{job="proxy",instance="10.0.0.7:8080"}': "0x120"},),
        labels={"cluster": ""},
    ),
    Case(
        "PulsarProxyRestarting", "critical", _starts("1 2 3 4x117"),
        "10.0.0.7:8080 was started 3 times in 15 minutes",
        (
            _starts("1 2 3x117"),
            _starts("1+1x120", build_info=False),
            _starts("1+1x120", build_info=False) | {OTHER: steady(1)},
            _starts(" ".join(f"{start}x14" for start in range(1, 9))),
        ),
        begins_seconds=90,
        told_seconds=600,
        over_seconds=930,
    ),
    Case(
        # A crash loop: every second scrape fails.
        "PulsarProxyRestarting", "critical",
        {
            "process_start_time_seconds": " ".join(f"{start} stale" for start in range(1, 16)),
            BUILD: " ".join(["1 stale"] * 15),
        },
        "10.0.0.7:8080 was started 10 times in 15 minutes",
        ({"process_start_time_seconds": "1 stale 2 stale 3x117", BUILD: "1 stale 1 stale 1x117"},),
        begins_seconds=180,
        told_seconds=600,
        over_seconds=1590,
    ),
    Case(
        "PulsarProxyMemoryNearLimit", "critical", _memory(51, 40, 100),
        "10.0.0.7:8080 uses 91% of the memory of its container or machine",
        (_memory(50, 40, 100), _memory(500, 400, None), _memory(50, 40, 100, 10), _memory(50, 40, None, 100)),
    ),
    Case(
        # A process of a machine without cgroups.
        "PulsarProxyMemoryNearLimit", "critical", _memory(51, 40, None, 100),
        "10.0.0.7:8080 uses 91% of the memory of its container or machine",
        (),
    ),
    Case(
        "PulsarProxyEventLoopLag", "warning", _lag("0.99", 0.251),
        "the event loop of 10.0.0.7:8080 is 0.25 s late, one time in a hundred",
        (_lag("0.99", 0.25), _lag("1.0", 2)),
        labels={"quantile": "0.99"},
    ),
    Case(
        "PulsarProxyControllerStale", "critical", _age(30.5),
        "clock of 10.0.0.7:8080 has not come to its end for 30.5s",
        (_age(30),),
        labels={"controller": "clock"},
    ),
    Case(
        # One of many a day, behind a restart.
        "PulsarProxyInternalErrors", "warning",
        {'pulsar_proxy_internal_errors_total{S,where="relay"}': "5x39 0x9 1x69"},
        "10.0.0.7:8080 met an exception that nobody expected",
        ({'pulsar_proxy_internal_errors_total{S,where="relay"}': steady(0)},),
        begins_seconds=1500,
        over_seconds=2400,
    ),
    Case(
        # The first of its kind: there is no increase yet.
        "PulsarProxyInternalErrors", "warning", {'pulsar_proxy_internal_errors_total{S,where="relay"}': "_x9 1x20"},
        "10.0.0.7:8080 met an exception that nobody expected",
        (),
        begins_seconds=270,
        told_seconds=600,
    ),
    Case(
        "PulsarProxyProducersHeld", "warning",
        {'pulsar_proxy_overload_paused_connections{S,what="paused"}': steady(1)},
        "10.0.0.7:8080 does not read 1 producing connections, because memory is short",
        (
            {'pulsar_proxy_overload_paused_connections{S,what="paused"}': steady(0)},
            {'pulsar_proxy_overload_paused_connections{S,what="would_pause"}': steady(9)},
        ),
        labels={"what": "paused"},
    ),
    Case(
        "PulsarProxyOverloadControlFails", "warning",
        {"pulsar_proxy_overload_evaluation_failures_total": growing(1)},
        "evaluations of a throttle of 10.0.0.7:8080 fail",
        ({"pulsar_proxy_overload_evaluation_failures_total": steady(7)},),
        begins_seconds=30,
    ),
    Case(
        "PulsarProxyEventsDropped", "warning",
        {'pulsar_proxy_event_log_dropped_total{S,sink="topic"}': "500x9 0+3x110"},
        "the event log of 10.0.0.7:8080 lost 60 events for topic in 10 minutes",
        ({'pulsar_proxy_event_log_dropped_total{S,sink="topic"}': steady(7)},),
        begins_seconds=330,
        labels={"sink": "topic"},
    ),
    Case(
        "PulsarProxyBudgetDoesNotFit", "warning", _budget(2048 * MIB + 1, 2048 * MIB),
        "the limits of 10.0.0.7:8080 add up to 2GiB, more than its container or machine has",
        (_budget(2048 * MIB, 2048 * MIB), _budget(2048 * MIB, None), _budget(2048 * MIB, None, 2048 * MIB)),
    ),
    Case(
        "PulsarProxyBudgetDoesNotFit", "warning", _budget(2048 * MIB + 1, None, 2048 * MIB),
        "the limits of 10.0.0.7:8080 add up to 2GiB, more than its container or machine has",
        (),
    ),
    Case(
        "PulsarProxyConfigReloadFailed", "warning", {"pulsar_proxy_config_reload_success": steady(0)},
        "the last reload of the configuration of 10.0.0.7:8080 was refused",
        ({"pulsar_proxy_config_reload_success": steady(1)},),
    ),
    Case(
        "PulsarProxyCertificateExpires", "warning", _expiry(7 * DAY - 1),
        "the certificate server of 10.0.0.7:8080 expires in 6d 23h 59m 59s",
        (_expiry(7 * DAY), _expiry(365 * DAY)),
        labels={"cert": "server"},
    ),
    Case(
        "PulsarProxyCertificateExpires", "critical", _expiry(DAY - 1),
        "the certificate server of 10.0.0.7:8080 expires in 23h 59m 59s",
        (),
        labels={"cert": "server"},
    ),
    Case(
        "PulsarProxyCertificateExpires", "critical", _expiry(-60),
        "the certificate server of 10.0.0.7:8080 expires in -1m 0s",
        (_expiry(DAY),),
        labels={"cert": "server"},
    ),
)  # fmt: skip
