"""Overload control in the running proxy: there only while a throttle is enabled, live; brokers asked over HTTP."""

import asyncio
import gzip
import json

import pytest
from aiohttp import web

from proxy.auth.own.broker_credentials import plain_credentials
from proxy.brokers.admin_port import AdminPort, AdminRefused, AdminUnavailable
from proxy.config.credential_parameters import TokenParameters
from proxy.overload.bounds import LARGEST_METRICS_BYTES
from proxy.overload.broker_questions import LOAD_PATH, METRICS_PATH, BrokerQuestions
from proxy.overload.samples import BacklogSample
from tests.support.patience import patient
from tests.support.proxies.counted import counted, counted_by
from tests.support.proxies.proxy_under_test import Stage, staged
from tests.support.web.connectors import load_connector
from tests.support.web.fake_web_broker import Answer, FakeWebBroker, fake_web_broker

OWN = plain_credentials(None)
THRESHOLD, ADAPTIVE = "overloadThrottleEnabled", "adaptivePublisherThrottlingEnabled"
METRICS = [{"metrics": {"jvm_heap_used": 5, "jvm_max_memory": 10}}]


@pytest.fixture(autouse=True)
def time_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give questions and looks at memory the time of this machine."""
    monkeypatch.setattr("proxy.brokers.admin_port.ANSWER_SECONDS", patient(3.0))
    monkeypatch.setattr("proxy.overload.machine_memory.READ_SECONDS", patient(2.0))


def names(stage: Stage) -> set[str]:
    """Return the names of all metrics of overload control, of samples and of families."""
    from proxy.app.metrics.prometheus import ProxyMetrics

    text = ProxyMetrics("c", stage.proxy.counters).render().decode()
    found = {(line.split()[2] if line.startswith("#") else line.split("{")[0]) for line in text.splitlines()}
    return {name for name in found if "overload" in name or "throttle" in name}


async def test_a6_throttles_that_are_off_are_not_there() -> None:
    async with staged() as stage:
        assert stage.proxy.overload.control is None
        assert names(stage) == set()


async def test_throttle_is_switched_on_changed_and_off_by_a_reload() -> None:
    async with staged() as stage:
        counters = stage.proxy.counters
        stage.change(**{THRESHOLD: "true", "overloadSignals": "proxy"})
        await stage.until(lambda: stage.proxy.overload.counters.threshold.evaluations > 1, "samples")
        assert stage.proxy.overload.counters.threshold.failures == 0
        assert "pulsar_proxy_overload_state" in names(stage)
        assert not any("adaptive" in name for name in names(stage))
        assert counted(counters, "controller_age_seconds", "overload") < 5
        stage.change(**{ADAPTIVE: "true", "adaptivePublisherThrottlingIntervalMs": "100"})
        await stage.until(lambda: stage.proxy.overload.counters.adaptive.evaluations > 1, "evaluations")
        assert "pulsar_proxy_adaptive_throttle_active_topic_count" in names(stage)
        # Off and on at once: the next control waits for the end of this one.
        for enabled in ("false", "true"):
            stage.change(**{THRESHOLD: enabled, ADAPTIVE: enabled})
        done = stage.proxy.overload.counters.adaptive.evaluations
        await stage.until(lambda: stage.proxy.overload.counters.adaptive.evaluations > done, "evaluations")
        stage.change(**{THRESHOLD: "false", ADAPTIVE: "false"})
        await stage.until(lambda: not names(stage), "the end of overload control")
        assert "overload" not in counted_by(counters, "controller_age_seconds")


async def test_memory_of_this_machine_and_of_brokers_is_read_while_a_throttle_only_observes() -> None:
    async with fake_web_broker() as broker:
        answering(broker, metrics=METRICS)
        async with staged(
            overloadThrottleEnabled="true", overloadThrottleObserveOnly="true",
            brokerWebServiceURL=broker.url,
        ) as stage:  # fmt: skip
            overload = stage.proxy.overload.counters
            view = overload.view
            assert view is not None
            await stage.until(lambda: view.signals.limit_bytes > 0 and view.signals.broker_ratio == 0.5, "samples")
            assert view.signals.source in ("cgroup v2", "cgroup v1", "machine")
            assert not any(overload.signal_failures.values())


def answering(broker: FakeWebBroker, **answers: object) -> None:
    """Answer with a status, or with a document, by the last part of the path."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        found = answers[request.raw_path.rpartition("/")[2].replace("-", "_")]
        if isinstance(found, int):
            return web.Response(status=found, headers={"Location": "http://127.0.0.1:1/"} if found == 307 else {})
        return web.Response(body=found if isinstance(found, bytes) else json.dumps(found).encode())

    broker.answer = answer


def questions(*brokers: FakeWebBroker) -> BrokerQuestions:
    return BrokerQuestions(tuple(broker.url for broker in brokers), AdminPort(OWN, None, load_connector))


@pytest.mark.threat("garbage-load-statistics")
async def test_the_loop_turns_while_the_metrics_of_a_broker_are_parsed() -> None:
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with fake_web_broker() as broker:
        metrics = json.dumps([*[{"metrics": {"x" * 100: 1.5}}] * 20_000, *METRICS]).encode()
        answering(broker, metrics=metrics)
        turning = asyncio.get_running_loop().create_task(turn())
        found = await questions(broker).memory(broker.url)
        turning.cancel()
        assert found == (0.5, 0.0)
        assert turns >= len(metrics) // 16_384


async def test_questions_have_the_credentials_that_are_configured() -> None:
    async with fake_web_broker() as broker:
        answering(broker, metrics=403, load_report={"memory": {"usage": 1, "limit": 2}}, stats={"backlogSize": 7})
        own = plain_credentials(TokenParameters(text="a-token"))
        asks = BrokerQuestions((broker.url,), AdminPort(own, None, load_connector))
        await asks.memory(broker.url)
        await asks.backlog("persistent://t/n/a")
        assert [asked.header("Authorization") for asked in broker.asked] == ["Bearer a-token"] * 3


async def test_broker_that_refuses_its_metrics_is_asked_for_its_load_report() -> None:
    async with fake_web_broker() as broker:
        answering(broker, metrics=403, load_report={"memory": {"usage": 1, "limit": 2}})
        assert await questions(broker).memory(broker.url) == (0.5, 0.0)
        assert [asked.path for asked in broker.asked] == [METRICS_PATH, LOAD_PATH]
        answering(broker, metrics=401, load_report=401)
        with pytest.raises(AdminRefused, match="status 401 for the role"):
            await questions(broker).memory(broker.url)


async def huge(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response(body=b"[" + b" " * LARGEST_METRICS_BYTES)


async def compressed(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response(body=gzip.compress(json.dumps(METRICS).encode()), headers={"Content-Encoding": "gzip"})


async def silent(_: web.BaseRequest) -> web.StreamResponse:
    await asyncio.sleep(patient(60))
    return web.Response()


async def dripping(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.01)


@pytest.mark.threat("garbage-load-statistics")
@pytest.mark.parametrize("answer", [huge, compressed, silent, dripping])
async def test_answers_that_are_huge_compressed_or_late_are_none(
    answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.brokers.admin_port.ANSWER_SECONDS", patient(0.2))
    async with fake_web_broker(answer) as broker:
        with pytest.raises(AdminUnavailable):
            await questions(broker).memory(broker.url)


@pytest.mark.threat("garbage-load-statistics")
async def test_redirect_takes_no_credentials_to_another_host() -> None:
    async with fake_web_broker() as broker, fake_web_broker() as stranger:

        async def answer(_: web.BaseRequest) -> web.StreamResponse:
            return web.Response(status=307, headers={"Location": stranger.url + METRICS_PATH})

        broker.answer = answer
        answering(stranger, metrics=METRICS)
        own = plain_credentials(TokenParameters(text="a-token"))
        with pytest.raises(AdminUnavailable, match="got status 307"):
            await BrokerQuestions((broker.url,), AdminPort(own, None, load_connector)).memory(broker.url)
        assert stranger.asked == []


async def test_backlog_comes_from_the_broker_that_owns_the_topic() -> None:
    async with fake_web_broker() as other, fake_web_broker() as owner:
        answering(other, stats=307)
        answering(owner, stats={"backlogSize": 7, "backlogQuotaLimitSize": 9})
        asks = questions(other, owner)
        assert await asks.backlog("persistent://t/n/a") == (BacklogSample(7, 9), owner.url)
        # The owner is asked first, if it is known, and the others when it is the owner no more.
        assert await asks.backlog("persistent://t/n/a", owner.url) == (BacklogSample(7, 9), owner.url)
        assert (len(other.asked), len(owner.asked)) == (1, 2)
        answering(other, stats={"backlogSize": 8})
        answering(owner, stats=307)
        assert await asks.backlog("persistent://t/n/a", owner.url) == (BacklogSample(8, 0), other.url)
