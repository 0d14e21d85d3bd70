"""Overload control in the running proxy: there only while a throttle is enabled, live; brokers asked over HTTP."""

import gc
import json
import tracemalloc
import weakref

import pytest
from aiohttp import web

from proxy.auth.own.broker_credentials import plain_credentials
from proxy.config.credential_parameters import TokenParameters
from proxy.overload.bounds import LARGEST_METRICS_BYTES
from proxy.overload.broker_questions import LOAD_PATH, METRICS_PATH, BrokerQuestions
from proxy.overload.broker_statistics import StatisticsRefused, StatisticsUnavailable
from proxy.overload.samples import BacklogSample, BrokerSample
from tests.support.proxies.proxy_under_test import Stage, staged
from tests.support.web.connectors import load_connector
from tests.support.web.fake_web_broker import FakeWebBroker, fake_web_broker

OWN = plain_credentials(None)
THRESHOLD, ADAPTIVE = "overloadThrottleEnabled", "adaptivePublisherThrottlingEnabled"
METRICS = [{"metrics": {"jvm_heap_used": 5, "jvm_max_memory": 10}}]


def names(stage: Stage) -> set[str]:
    """Return the names of all metrics of overload control, of samples and of families."""
    from proxy.app.metrics.prometheus import ProxyMetrics

    text = ProxyMetrics("c", stage.proxy.metric_sources).render().decode()
    found = {(line.split()[2] if line.startswith("#") else line.split("{")[0]) for line in text.splitlines()}
    return {name for name in found if "overload" in name or "throttle" in name}


async def test_a6_throttles_that_are_off_are_not_there() -> None:
    async with staged() as stage:
        assert stage.proxy.overload.control is None
        assert names(stage) == set()


async def test_throttle_is_switched_on_changed_and_off_by_a_reload() -> None:
    async with staged() as stage:
        counters = stage.proxy.counters
        stage.change(**{THRESHOLD: "true", "overloadSampleMillis": "50", "overloadSignals": "proxy"})
        await stage.until(lambda: counters.overload.threshold.evaluations > 1, "samples")
        assert counters.overload.threshold.failures == 0
        assert "pulsar_proxy_overload_state" in names(stage)
        assert not any("adaptive" in name for name in names(stage))
        assert counters.controllers["overload"]() < 5
        stage.change(**{ADAPTIVE: "true", "adaptivePublisherThrottlingIntervalMs": "100"})
        await stage.until(lambda: counters.overload.adaptive.evaluations > 1, "evaluations")
        assert "pulsar_proxy_adaptive_throttle_active_topic_count" in names(stage)
        stage.change(**{THRESHOLD: "false", ADAPTIVE: "false"})
        await stage.until(lambda: not names(stage), "the end of overload control")
        assert "overload" not in counters.controllers


async def test_a_control_that_has_ended_is_not_kept() -> None:
    async with staged(adaptivePublisherThrottlingEnabled="true", overloadSignals="proxy") as stage:
        assert stage.proxy.overload.control is not None
        first = weakref.ref(stage.proxy.overload.control)
        stage.change(**{ADAPTIVE: "false"})
        stage.change(**{ADAPTIVE: "true"})

        def is_gone() -> bool:
            gc.collect()
            return first() is None

        await stage.until(is_gone, "nobody who keeps the control that has ended")


async def test_this_machines_memory_is_read_while_a_throttle_only_observes() -> None:
    async with staged(
        overloadThrottleEnabled="true", overloadThrottleObserveOnly="true", overloadSampleMillis=50,
        overloadSignals="proxy",
    ) as stage:  # fmt: skip
        view = stage.proxy.counters.overload.view
        assert view is not None
        await stage.until(lambda: view.signals.limit_bytes > 0, "a sample")
        assert view.signals.source in ("cgroup v2", "cgroup v1", "machine")
        assert stage.proxy.counters.overload.signal_failures["proxy"] == 0


def answering(broker: FakeWebBroker, **answers: object) -> None:
    """Answer with a status, or with a document, by the last part of the path."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        found = answers[request.raw_path.rpartition("/")[2].replace("-", "_")]
        if isinstance(found, int):
            return web.Response(status=found, headers={"Location": "http://127.0.0.1:1/"} if found == 307 else {})
        return web.Response(body=found if isinstance(found, bytes) else json.dumps(found).encode())

    broker.answer = answer


async def test_memory_of_each_broker_that_answers_is_known() -> None:
    async with fake_web_broker() as broker:
        answering(broker, metrics=METRICS)
        found = await BrokerQuestions((broker.url, "http://127.0.0.1:1"), OWN, None, load_connector).memory()
        assert list(found) == [broker.url, "http://127.0.0.1:1"]
        answered, refused = found.values()
        assert answered == BrokerSample(5, 10, 0, 0)
        assert isinstance(refused, StatisticsUnavailable)


async def test_questions_have_the_credentials_that_are_configured() -> None:
    async with fake_web_broker() as broker:
        answering(broker, metrics=403, load_report={"memory": {"usage": 1, "limit": 2}}, stats={"backlogSize": 7})
        own = plain_credentials(TokenParameters(text="a-token"))
        questions = BrokerQuestions((broker.url,), own, None, load_connector)
        await questions.memory()
        await questions.backlog("persistent://t/n/a")
        assert [asked.header("Authorization") for asked in broker.asked] == ["Bearer a-token"] * 3


async def test_broker_that_refuses_its_metrics_is_asked_for_its_load_report() -> None:
    async with fake_web_broker() as broker:
        answering(broker, metrics=403, load_report={"memory": {"usage": 1, "limit": 2}})
        found = await BrokerQuestions((broker.url,), OWN, None, load_connector).memory()
        assert found == {broker.url: BrokerSample(1 << 20, 1 << 21, 0, 0)}
        assert [asked.path for asked in broker.asked] == [METRICS_PATH, LOAD_PATH]
        answering(broker, metrics=401, load_report=401)
        with pytest.raises(StatisticsRefused, match="status 401 for the role"):
            await BrokerQuestions((broker.url,), OWN, None, load_connector).memory()


@pytest.mark.parametrize("answer", [b"[" + b" " * LARGEST_METRICS_BYTES, b"[" + b'{"a": 1},' * 300_000 + b"x"])
async def test_answers_that_cannot_be_used_are_freed_at_once(answer: bytes) -> None:
    async with fake_web_broker() as broker:
        answering(broker, metrics=answer, stats=answer[:500_000])
        questions = BrokerQuestions((broker.url,), OWN, None, load_connector)

        async def ask() -> None:
            for question in (questions.memory(), questions.backlog("persistent://t/n/a")):
                with pytest.raises(StatisticsUnavailable):
                    await question

        # Imports, and what they keep.
        await ask()
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(4):
                await ask()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.enable()
        # One answer is that of the server, of this process.
        assert held < LARGEST_METRICS_BYTES


@pytest.mark.threat("garbage-load-statistics")
async def test_redirect_takes_no_credentials_to_another_host() -> None:
    async with fake_web_broker() as broker, fake_web_broker() as stranger:

        async def answer(_: web.BaseRequest) -> web.StreamResponse:
            return web.Response(status=307, headers={"Location": stranger.url + METRICS_PATH})

        broker.answer = answer
        answering(stranger, metrics=METRICS)
        own = plain_credentials(TokenParameters(text="a-token"))
        with pytest.raises(StatisticsUnavailable, match="got status 307"):
            await BrokerQuestions((broker.url,), own, None, load_connector).memory()
        assert stranger.asked == []


async def test_backlog_comes_from_the_broker_that_owns_the_topic() -> None:
    async with fake_web_broker() as other, fake_web_broker() as owner:
        answering(other, stats=307)
        answering(owner, stats={"backlogSize": 7, "backlogQuotaLimitSize": 9})
        questions = BrokerQuestions((other.url, owner.url), OWN, None, load_connector)
        assert await questions.backlog("persistent://t/n/a") == BacklogSample(7, 9)
        # The owner is asked first from then on, and the others when it is the owner no more.
        assert await questions.backlog("persistent://t/n/a") == BacklogSample(7, 9)
        assert (len(other.asked), len(owner.asked)) == (1, 2)
        answering(other, stats={"backlogSize": 8})
        answering(owner, stats=307)
        assert await questions.backlog("persistent://t/n/a") == BacklogSample(8, 0)


async def test_brokers_of_topics_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.overload.broker_questions.MOST_BACKLOGS", 2)
    async with fake_web_broker() as other, fake_web_broker() as owner:
        answering(other, stats=307)
        answering(owner, stats={"backlogSize": 7})
        questions = BrokerQuestions((other.url, owner.url), OWN, None, load_connector)
        # The third topic takes the place of the one that was asked for longest ago.
        for name in ("a", "b", "a", "c", "a", "b"):
            await questions.backlog(f"persistent://t/n/{name}")
        assert (len(other.asked), len(owner.asked)) == (4, 6)
