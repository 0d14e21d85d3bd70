"""Series for which each alert fires, and neighbours of them for which it must not.

Rule: values stand close to the threshold on both sides, so that a rule with another one fails. `S` in a series is the
place of the labels that every sample of one proxy has.
"""

from dataclasses import dataclass, field

LABELS = {"cluster": "blue", "job": "proxy", "instance": "10.0.0.7:8080"}
LIST = "pulsar_proxy_topic_list_"
REFUSING = "pulsar_proxy_brokers_refusing"
DUE = "pulsar_proxy_lists_due_total"
PROMPT = "pulsar_proxy_lists_prompt_total"
MIB = 1024 * 1024
DAY = 86_400

Series = dict[str, str]


@dataclass(frozen=True)
class Case:
    """What fires an alert: its expression holds first at `begins_seconds`, and its text is compared at `told_seconds`.

    At `over_seconds` it fires no more, if it ends at all. None of `silent` fires it. `labels` are those that the alert
    has besides the proxy's; an empty one it has not. Samples and evaluations are `step_seconds` apart.
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
    step_seconds: int = 30

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


def _lists(due: str, prompt: str) -> Series:
    """Counters of lists that were due and of those that were prompt, for as many samples as the texts say."""
    return {DUE: due, PROMPT: prompt}


def _late(due_per_minute: float, late_per_minute: float) -> Series:
    return _lists(growing(due_per_minute), growing(due_per_minute - late_per_minute))


def _five_minutes(due: int, late: int, count: int) -> Series:
    """Counters that grow by so much in five minutes, sampled as often, `count` times."""
    return _lists(f"0+{due}x{count}", f"0+{due - late}x{count}")


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


def _expires(at: float) -> Series:
    return {'pulsar_proxy_tls_cert_expiration_timestamp_seconds{S,cert="server"}': steady(at)}


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
        # Half of a hundred lists a minute are late for half an hour.
        "PulsarProxyListsLate", "critical",
        _lists("0+50x120", "0+25x60 1550+50x60"),
        "50% of the topic lists of proxy are late or refused",
        (
            # One refusal in the night, of a few lists.
            _lists("0+0x40 5x80", "0+0x40 4x80"),
            # All of ten are late: too few to wake somebody.
            _lists("0+0.25x40 10x80", "0x120"),
            _late(100, 5.9),
            _lists("0x120", "0x120"),
        ),
        begins_seconds=30,
        told_seconds=1200,
        over_seconds=3390,
        labels={"instance": ""},
    ),
    Case(
        # Seven of a hundred are late for six hours: six times as many as the objective allows, and not in an hour.
        "PulsarProxyListsLate", "critical", _five_minutes(500, 35, 100),
        "7% of the topic lists of proxy are late or refused",
        (),
        begins_seconds=300,
        told_seconds=9000,
        labels={"instance": ""},
        step_seconds=300,
    ),
    Case(
        # Two of a hundred are late for days.
        "PulsarProxyListsLate", "warning", _five_minutes(500, 10, 1000),
        "2% of the topic lists of proxy were late or refused over days",
        (_five_minutes(500, 4, 1000), _five_minutes(0, 0, 1000)),
        begins_seconds=600,
        told_seconds=90_000,
        labels={"instance": ""},
        step_seconds=300,
    ),
    *(
        Case(
            "PulsarProxyClientsRejected", "warning", _rejected(grown(6), which),
            "10.0.0.7:8080 turned away 90 connections and requests in 15 minutes, for their number",
            # One refusal in the night, and ten.
            (_rejected(), _rejected("0x40 1x80", which), _rejected("0x40 9x80", which)),
            begins_seconds=120,
            over_seconds=2610,
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
            # Brokers that refuse the proxy can be reached: another alert tells.
            {'pulsar_proxy_brokers{S,state="up"}': steady(0), 'pulsar_proxy_brokers{S,state="refusing"}': steady(1)},
            {'pulsar_proxy_brokers{S,state="up"}': steady(1), 'pulsar_proxy_brokers{S,state="down"}': steady(3)},
            {'pulsar_proxy_brokers{S,state="up"}': steady(1), 'pulsar_proxy_brokers{S,state="down"}': steady(0)},
        ),
        begins_seconds=300,
    ),
    Case(
        "PulsarProxyBrokerDown", "warning", {'pulsar_proxy_brokers{S,state="down"}': steady(2)},
        "10.0.0.7:8080 cannot use 2 of its brokers",
        ({'pulsar_proxy_brokers{S,state="up"}': steady(2), 'pulsar_proxy_brokers{S,state="down"}': steady(0)},),
    ),
    Case(
        # A server that is no broker: down for a moment after each probe, then on trial until the next.
        "PulsarProxyBrokerDown", "warning",
        {
            'pulsar_proxy_brokers{S,state="up"}': steady(1), 'pulsar_proxy_brokers{S,state="down"}': "0 1 " * 60,
            'pulsar_proxy_brokers{S,state="trial"}': "1 0 " * 60,
        },
        "10.0.0.7:8080 cannot use 1 of its brokers",
        ({'pulsar_proxy_brokers{S,state="up"}': steady(2), 'pulsar_proxy_brokers{S,state="trial"}': steady(0)},),
    ),
    Case(
        "PulsarProxyBrokerRefusesProxy", "critical",
        {REFUSING: steady(2), 'pulsar_proxy_brokers{S,state="up"}': "1x9 0x110"},
        "2 brokers of 10.0.0.7:8080 refuse the proxy's credentials, and none is up",
        (
            {REFUSING: steady(1), 'pulsar_proxy_brokers{S,state="up"}': steady(1)},
            # Brokers that nobody has asked yet.
            {
                REFUSING: steady(0), 'pulsar_proxy_brokers{S,state="up"}': steady(0),
                'pulsar_proxy_brokers{S,state="unknown"}': steady(2),
            },
        ),
        begins_seconds=300,
    ),
    Case(
        "PulsarProxyBrokerRefusesProxy", "warning", {REFUSING: steady(1)},
        "1 brokers of 10.0.0.7:8080 refuse the proxy's credentials", ({REFUSING: steady(0)},),
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
        "PulsarProxyCertificateExpires", "warning", _expires(7 * DAY + 300),
        "the certificate server of 10.0.0.7:8080 expires in 6d 23h 35m 0s",
        (_expires(7 * DAY + 3600), _expires(365 * DAY)),
        begins_seconds=330,
        labels={"cert": "server"},
    ),
    Case(
        "PulsarProxyCertificateExpires", "critical", _expires(DAY + 300),
        "the certificate server of 10.0.0.7:8080 expires in 23h 35m 0s",
        (),
        begins_seconds=330,
        labels={"cert": "server"},
    ),
    Case(
        "PulsarProxyCertificateExpires", "critical", _expires(-60),
        "the certificate server of 10.0.0.7:8080 expires in -31m 0s",
        (_expires(DAY + 3600),),
        labels={"cert": "server"},
    ),
)  # fmt: skip
