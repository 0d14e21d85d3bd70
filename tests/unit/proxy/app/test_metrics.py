import itertools
import math
import re
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest

import proxy
from protocol.command_type import CommandType
from proxy.app.memory.budget import KERNEL_LINES, LINES, worst_case
from proxy.app.memory.nodes import NODES
from proxy.app.metrics.counters import BudgetLine
from proxy.app.metrics.prometheus import ProxyMetrics
from proxy.app.metrics.table import INSTRUMENTS
from proxy.auth import authenticator
from proxy.clients.requests import ASKED
from proxy.config.config import Config
from proxy.core.counters import Counters, Declared
from proxy.core.process_memory import MemoryPaths
from proxy.telemetry.events.log import SinkNumbers
from tests.support.proxies.metric_sources import Books, FullEventLog, Sources, full_relays, full_view, known_process
from tests.support.web.web_pages import Samples, Scrape

TOPIC_LIST = "pulsar_proxy_topic_list_"
CREATED = 1_700_000_000.25
WORD = re.compile(r"[\w.:+-]+")


class Setting:
    def __init__(self, heap: Books | None = None, direct: Books | None = None, **parts: Any) -> None:
        self.counters = Counters(created=CREATED)
        held = {node.label: 7 for node in NODES if node.label}
        self.sources = Sources(self.counters, heap or Books(), direct or Books(), held=held, **parts)
        self.metrics = ProxyMetrics("blue", self.counters)

    def text(self) -> str:
        return self.metrics.render().decode()

    def samples(self) -> Samples:
        return Scrape(self.text(), "blue").samples

    def value(self, name: str, **labels: str) -> float:
        return self.samples()[name, frozenset(labels.items())]


def test_the_topic_list_family_has_the_26_samples_of_pip_442() -> None:
    expected = {
        *(f"{m}_memory_{what}_bytes" for m in ("heap", "direct") for what in ("used", "limit")),
        *(f"{m}_queue_{what}" for m in ("heap", "direct") for what in ("size", "max_size")),
        *(f"{m}_timeout_{what}" for m in ("heap", "direct") for what in ("total", "created")),
        *(f"{m}_wait_time_ms{what}" for m in ("heap", "direct") for what in ("", "_count", "_sum", "_created")),
    }
    lines = [line for line in Setting().text().splitlines() if line.startswith(TOPIC_LIST)]
    quantiles = [line.partition("quantile=")[2] for line in lines if "heap_wait_time_ms{" in line]
    assert quantiles == ['"0.5"} NaN', '"0.95"} NaN', '"0.99"} NaN', '"1.0"} NaN']
    assert {line.removeprefix(TOPIC_LIST).partition("{")[0] for line in lines} == expected
    assert all('cluster="blue"' in line for line in lines)


def test_limiters_are_read_each_from_its_own_books() -> None:
    heap = Books(held=1, limit=2, queue_size=3, max_queue=4, timed_out=5, rejected=6, cancelled=7, overshoots=8)
    direct = Books(held=11, limit=12, queue_size=13, max_queue=14, timed_out=15, rejected=16, cancelled=17)
    setting = Setting(heap, direct)
    for memory, first in (("heap", 1), ("direct", 11)):
        names = ("memory_used_bytes", "memory_limit_bytes", "queue_size", "queue_max_size", "timeout_total")
        found = [setting.value(f"{TOPIC_LIST}{memory}_{name}") for name in names]
        assert found == [first, first + 1, first + 2, first + 3, first + 4]
        assert setting.value(f"{TOPIC_LIST}{memory}_timeout_created") == CREATED
        assert setting.value("pulsar_proxy_lists_queue_full_total", limiter=memory) == first + 5
        assert setting.value("pulsar_proxy_lists_cancelled_total", limiter=memory) == first + 6
    assert setting.value("pulsar_proxy_lists_overshoots_total", limiter="heap") == 8


def test_waits_are_milliseconds_and_timeouts_are_waits_too() -> None:
    setting = Setting()
    waited = setting.sources.heap_waits.waited
    for _ in range(99):
        waited(0.0, True)
    waited(25.5, False)
    assert setting.value(f"{TOPIC_LIST}heap_wait_time_ms", quantile="0.5") == 0.0
    assert setting.value(f"{TOPIC_LIST}heap_wait_time_ms", quantile="1.0") == 25_500.0
    assert setting.value(f"{TOPIC_LIST}heap_wait_time_ms_count") == 100
    assert setting.value(f"{TOPIC_LIST}heap_wait_time_ms_sum") == 25_500.0
    assert math.isnan(setting.value(f"{TOPIC_LIST}direct_wait_time_ms", quantile="1.0"))


def test_requests_are_counted_by_their_command() -> None:
    setting = Setting()
    for number, kind in enumerate(
        (
            CommandType.LOOKUP,
            CommandType.PARTITIONED_METADATA,
            CommandType.GET_TOPICS_OF_NAMESPACE,
            CommandType.GET_SCHEMA,
        ),
        1,
    ):
        setting.counters[ASKED[kind]].value = number
    names = ("lookup", "partitions_metadata", "get_topics_of_namespace", "get_schema")
    assert [setting.value(f"pulsar_proxy_{name}_requests_total") for name in names] == [1, 2, 3, 4]


def test_every_counter_reaches_a_metric() -> None:
    setting = Setting()
    counters = setting.counters
    view = setting.sources.overload.view = full_view(itertools.count(1))
    assert view.shows_topics
    zero = setting.samples()
    for metric in INSTRUMENTS:
        if isinstance(metric, Declared) and not metric.labels:
            counters[metric].value = 12_345
            changed = setting.samples()
            assert [key for key in zero if changed[key] == 12_345], metric.name
            counters[metric].value = 0
    for book in (setting.sources.budget, setting.sources.overload):
        for name in type(book).__slots__:
            if isinstance(getattr(book, name, None), int):
                setattr(book, name, 12_345)
                changed = setting.samples()
                assert [key for key in zero if changed[key] == 12_345], name
                setattr(book, name, 0)


def test_what_a_module_declares_is_in_the_table() -> None:
    modules = [
        import_module(each.name) for each in walk_packages(proxy.__path__, "proxy.") if "__main__" not in each.name
    ]
    found = {value for module in modules for value in vars(module).values() if isinstance(value, Declared)}
    assert found, "modules declare what they count"
    assert sorted(each.name for each in found - set(INSTRUMENTS)) == []


def test_a6_throttle_that_is_not_enabled_has_no_metric_at_all() -> None:
    setting = Setting()
    assert "throttle" not in setting.text()
    assert "overload" not in setting.text()
    view = setting.sources.overload.view = full_view(itertools.count(1))
    view.threshold_state, view.shows_topics = "paused", False
    names = {name for name, _ in setting.samples()}
    assert "pulsar_proxy_overload_state" in names
    assert "pulsar_proxy_adaptive_throttle_active_topic_count" in names
    assert not any(name.startswith("pulsar_proxy_topic_adaptive") for name in names)


def test_names_are_unique_and_follow_the_prometheus_rules() -> None:
    names = [instrument.exposed_name for instrument in INSTRUMENTS]
    assert len(names) == len(set(names))
    for instrument in INSTRUMENTS:
        prefix = {"pulsar": "pulsar_", "convention": "process_"}.get(instrument.origin, "pulsar_proxy_")
        assert instrument.exposed_name.startswith(prefix)
        assert not instrument.name.endswith("_total")


def test_logins_are_shown_under_names_of_upstream() -> None:
    setting = Setting()
    counters = setting.counters
    counters[authenticator.SUCCESSES]["AuthenticationProviderTls", "tls"] += 1
    counters[authenticator.FAILURES]["AuthenticationProviderToken", "token", "INVALID_TOKEN"] += 1
    counters[authenticator.EXPIRED].value += 1
    counters[authenticator.RELOADS]["refused"] += 1
    who = {"provider_name": "AuthenticationProviderToken", "auth_method": "token"}
    assert setting.value("pulsar_authentication_failures_total", **who, reason="INVALID_TOKEN") == 1
    who = {"provider_name": "AuthenticationProviderTls", "auth_method": "tls"}
    assert setting.value("pulsar_authentication_success_total", **who) == 1
    assert setting.value("pulsar_expired_token_total") == 1
    assert setting.value("pulsar_proxy_authentication_file_reloads_total", result="refused") == 1


@pytest.mark.parametrize(("budget_bytes", "fits"), [(1024 * 1024, 1), (1024 * 1024 + 1, 0)])
def test_a_budget_beyond_the_container_is_a_zero(tmp_path: Path, budget_bytes: int, fits: int) -> None:
    setting = Setting()
    setting.sources.budget.total_bytes = budget_bytes
    setting.sources.at(known_process(tmp_path))
    assert setting.value("pulsar_proxy_memory_budget_fits") == fits
    setting.sources.at(MemoryPaths(tmp_path, tmp_path))
    assert setting.value("pulsar_proxy_memory_budget_fits") == 1


def test_the_parts_of_the_budget_are_shown_with_what_is_in_use() -> None:
    sink = SinkNumbers(0, 0, 0, 0, 42)
    setting = Setting(heap=Books(held=7), event_log=FullEventLog(files=sink))
    setting.sources.budget.lines = (BudgetLine("queues", "the queues", "", 5),)
    assert setting.value("pulsar_proxy_memory_budget_part_bytes", owner="queues") == 5
    used = "pulsar_proxy_memory_budget_used_bytes"
    assert setting.value(used, owner="decoded_lists") == 7
    assert setting.value(used, owner="events_files") == 42


def test_every_part_whose_use_is_known_is_a_part_of_the_budget(tmp_path: Path) -> None:
    keys = {
        "brokerServiceURL": "pulsar://b:6650",
        "eventLogDirectory": str(tmp_path),
        "eventLogTopic": "persistent://public/default/t",
    }
    sink = SinkNumbers(0, 0, 0, 0, 0)
    # With a bound, as with the default of relaySocketMemoryMB.
    relays: Any = full_relays(itertools.count(1))
    relays.pool = None
    setting = Setting(event_log=FullEventLog(files=sink, topic=sink), relays=relays)
    used = {dict(labels)["owner"] for name, labels in setting.samples() if name.endswith("memory_budget_used_bytes")}
    assert used <= {line.label for line in worst_case(Config.load(None, {}, keys))}


def test_each_part_of_the_budget_has_a_label_of_its_own_that_is_a_word() -> None:
    labels = [line.label for line in LINES] + [line.label for line in KERNEL_LINES]
    assert len(set(labels)) == len(labels)
    assert all(WORD.fullmatch(label) for label in labels)
    # Somebody's dashboard asks for these: a text may change, its label may not.
    assert {"process", "decoded_lists", "send_buffers"} <= {*labels}


def test_labels_are_words() -> None:
    setting = Setting()
    for where in ("topic list group", "topic_list group", "topic_list group"):
        setting.counters.internal_error(ValueError(), where)
    assert setting.value("pulsar_proxy_internal_errors_total", where="topic_list_group") == 3


def test_a_tenant_with_a_name_that_cannot_be_written_is_shown_all_the_same() -> None:
    setting = Setting()
    setting.sources.tenants.asked("\udc80/ns")
    setting.sources.tenants.asked('a"} 1\nforged/ns')
    assert setting.value("pulsar_proxy_tenant_lists_total", tenant="?") == 1
    assert "\nforged" not in setting.text()


def test_a_cluster_name_with_quotes_stays_one_label() -> None:
    setting = Setting()
    hostile = ProxyMetrics('a"} 1\nforged 2', setting.counters)
    assert "\nforged 2" not in hostile.render().decode()
