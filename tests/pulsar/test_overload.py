"""Overload control between real clients and a real broker: who is slowed loses nothing, and is back at once.

In one test memory is real and has a real limit; in the others the signal is injected (`pressed_proxy.py`), or is the
broker's own word. All verdicts are on events and counts: cycles are evaluations, of which each decision is an event.
The full size is `python -m benchmarks.overload_real`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.pulsar.admin import Admin
from tests.pulsar.open_loop import Load, Producers, Tally, arrivals, java_producers, python_producers
from tests.pulsar.own_broker import in_one_line
from tests.pulsar.pages import proxy_metrics
from tests.pulsar.pressed_proxy import Pressure
from tests.pulsar.proxy_process import COMMAND, Proxy, run_proxy
from tests.pulsar.standalone import Broker
from tests.pulsar.throttle_events import decisions
from tests.support.memory_group import MemoryGroup, NoMemoryGroupError, memory_group
from tests.support.patience import patient
from tests.support.tools import unusable
from tests.support.web.web_pages import Scrape

pytestmark = [pytest.mark.pulsar, pytest.mark.timeout(300)]

PATIENCE_SECONDS: Final = 60.0
MOST_CYCLES: Final = 4
# A client gives a connection up that is silent for one to two of these; a drip comes twice as often.
KEEP_ALIVE_SECONDS: Final = round(patient(2))
THRESHOLD: Final = {
    "overloadThrottleEnabled": "true",
    "overloadSignals": "proxy",
    "overloadMaxPauseMillis": str(KEEP_ALIVE_SECONDS * 2000),
}
ADAPTIVE: Final = {
    "adaptivePublisherThrottlingEnabled": "true",
    "adaptivePublisherThrottlingIntervalMs": "200",
    "adaptivePublisherThrottlingPerTopicMetricsEnabled": "true",
    "overloadSignals": "proxy",
}
LIMIT_BYTES: Final = 128 << 20
# Marks that ten producers reach: without a pause, what a broker does not take of theirs is 4 MiB each, and 2 received.
REAL: Final = {
    "overloadMemoryHighWatermark": "0.45",
    "overloadMemoryLowWatermark": "0.40",
    "relayUnsentBytes": str(4 << 20),
    # A frame of 10 KB each 5 s: more would fill the proxy in spite of the pause.
    "overloadMaxPauseMillis": "600000",
}
# Above the rates below which nobody is held, so that the rule itself is seen.
FAST: Final = {"per_second": 150, "message_bytes": 4000}


def heavy(topic: str) -> Load:
    """Return producers that send until 9 MB of each are not acknowledged."""
    return Load([topic], 5, 100, 10_000, most_pending=900)


class Scene:
    """A proxy whose memory a test sets, its producers, and a consumer that receives past the proxy.

    With a `group` memory is real, and its limit that of the group.
    """

    def __init__(
        self,
        stack: ExitStack,
        directory: Path,
        broker: Broker,
        keys: Mapping[str, str],
        topic: str,
        group: MemoryGroup | None,
    ) -> None:
        self._stack = stack
        self._directory = directory
        self._events = directory / "events"
        self.pressure = Pressure(directory / "cgroup")
        keys = {**keys, "eventLogDirectory": str(self._events), "eventLogIdentities": "plain"}
        self._proxy = ExitStack()
        stack.push(self._proxy)
        command = self.pressure.command if group is None else group.command(COMMAND)
        self.proxy: Proxy = self._proxy.enter_context(run_proxy(directory, broker, keys, command))
        self.producers: list[Producers] = []
        self._arrivals = stack.enter_context(arrivals(broker.service_url, [topic]))

    def java(self, name: str, load: Load) -> None:
        """Start producers in Java."""
        url = self.proxy.service_url
        self.producers.append(self._stack.enter_context(java_producers(self._directory, url, name, load)))

    def python(self, name: str, load: Load) -> None:
        """Start producers in Python."""
        self.producers.append(self._stack.enter_context(python_producers(self.proxy.service_url, name, load)))

    def tallies(self, prefix: str = "") -> dict[str, Tally]:
        """Return what all producers know."""
        found = {name: tally for each in self.producers for name, tally in each.tallies().items()}
        return {name: tally for name, tally in found.items() if name.startswith(prefix)}

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition; raises ProcessFailedError."""
        self.proxy.process.wait_ready(lambda: bool(condition()), PATIENCE_SECONDS)

    def shown(self) -> Scrape:
        return proxy_metrics(self.proxy)

    def paused(self) -> float:
        return self.shown()("overload_paused_connections", what="paused")

    def acked_by_all(self, prefix: str, count: int) -> None:
        """Wait until each producer has so many more acknowledged messages."""
        target = {name: tally.acked + count for name, tally in self.tallies(prefix).items()}
        self.until(lambda: all(self.tallies(prefix)[name].acked >= least for name, least in target.items()))

    def caught_up(self) -> None:
        """Wait until no producer has more than a second's messages under way."""
        self.until(lambda: all(tally.waiting < FAST["per_second"] for tally in self.tallies().values()))

    def end_of_sending(self) -> None:
        """Stop all producers: everything was acknowledged, has arrived once and in order, and nobody reconnected."""
        for each in self.producers:
            each.stop()
        tallies = self.tallies()
        assert {name: tally.failed for name, tally in tallies.items() if tally.failed} == {}
        assert all(tally.closed and not tally.waiting for tally in tallies.values())
        self.until(lambda: not self._arrivals.missing(tallies))
        assert self._arrivals.faults(tallies) == []

    def decisions(self, by: str) -> list[dict[str, Any]]:
        """End the proxy and return what one throttle decided."""
        self._proxy.close()
        return decisions(self._events, by)


# Of its keys, a topic, and the group of its memory if that has a limit; scenes end with the test.
NewScene = Callable[..., Scene]


@pytest.fixture
def new_scene(broker: Broker, tmp_path: Path) -> Iterator[NewScene]:
    with in_one_line(), ExitStack() as stack:
        yield lambda keys, topic, group=None: Scene(stack, tmp_path, broker, keys, topic, group)


def test_paused_producers_keep_their_connections_lose_nothing_and_are_back_within_four_cycles(
    new_scene: NewScene, topic: str
) -> None:
    scene = new_scene(THRESHOLD, topic)
    scene.java("java", Load([topic], 3, 50, keep_alive_seconds=KEEP_ALIVE_SECONDS))
    scene.java("idle", Load([topic], 1, 0, keep_alive_seconds=KEEP_ALIVE_SECONDS))
    scene.python("python", Load([topic], 3, 50))
    senders = ("java", "python")
    for name in senders:
        scene.acked_by_all(name, 20)
    connections = scene.shown()("new_connections_total")
    scene.pressure.set(0.9)
    scene.until(lambda: scene.paused() == len(scene.tallies()))
    before = scene.shown()
    for name in senders:
        scene.acked_by_all(name, 2)
        scene.until(lambda: all(tally.waiting > 50 for tally in scene.tallies(name).values()))  # noqa: B023
    # Longer than what ends a silent connection; then the longest pause is over, and more than a frame passes.
    scene.until(lambda: scene.shown()("overload_longest_pause_seconds") > 2.5 * KEEP_ALIVE_SECONDS)
    scene.until(lambda: scene.shown()("overload_pause_overshoots_total") >= len(scene.tallies()))
    assert scene.shown()("overload_drips_total") > before("overload_drips_total")
    # A producer that is closed in the pause is closed by the broker, not given up by its client.
    idle = scene.producers.pop(1)
    idle.stop()
    assert [tally.closed for tally in idle.tallies().values()] == [True]
    scene.until(lambda: scene.paused() == len(scene.tallies()))
    scene.pressure.set(0.5)
    scene.until(lambda: not scene.paused())
    scene.caught_up()
    scene.end_of_sending()
    assert scene.shown()("new_connections_total") == connections
    made = scene.decisions("threshold")
    released = [event for event in made if event["throttle_action"] == "resume"]
    assert 0 < len(released) <= MOST_CYCLES
    assert sum(event["throttle_connections"] for event in released) == len(scene.tallies())


@pytest.fixture
def group() -> Iterator[MemoryGroup]:
    try:
        with memory_group(LIMIT_BYTES) as made:
            yield made
    except NoMemoryGroupError as error:
        unusable("memory cgroup", str(error))


def test_memory_of_a_proxy_with_a_real_limit_stays_below_it_while_a_broker_takes_next_to_nothing(
    group: MemoryGroup, new_scene: NewScene, namespace: str, topic: str, admin: Admin
) -> None:
    scene = new_scene(THRESHOLD | REAL, topic, group)
    scene.java("java", heavy(topic))
    scene.python("python", heavy(topic))
    connections = scene.shown()("new_connections_total")
    told: list[float] = []

    def used() -> float:
        told.append(sum(scene.shown().family("pulsar_proxy_overload_memory_used_bytes").values()))
        return told[-1]

    publish_rate(admin, namespace, 10_000)
    scene.until(lambda: used() and scene.paused() == len(scene.tallies()))
    # As much as clients and kernel hold of what they send: it is all in the proxy by now, or never.
    scene.until(lambda: used() and all(tally.withheld > 50 for tally in scene.tallies().values()))
    publish_rate(admin, namespace, -1)
    scene.until(lambda: used() and not scene.paused())
    scene.caught_up()
    scene.end_of_sending()
    assert scene.shown()("new_connections_total") == connections
    assert group.failures() == 0
    # How far above the high mark memory comes hangs on the machine's speed: benchmarks/overload_real judges that.
    assert float(REAL["overloadMemoryLowWatermark"]) * LIMIT_BYTES < max(told) < LIMIT_BYTES
    assert {event["throttle_action"] for event in scene.decisions("threshold")} == {"pause", "resume"}


def publish_rate(admin: Admin, namespace: str, size: int) -> None:
    body = {"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": size}
    admin.call("POST", f"/admin/v2/namespaces/{namespace}/publishRate", body)


def test_a_topic_whose_backlog_grows_is_slowed_by_what_the_broker_says_of_it(
    new_scene: NewScene, topic: str, admin: Admin
) -> None:
    path = f"/admin/v2/{topic.replace('://', '/')}/subscription/nobody"
    admin.create_topic(topic)
    # A subscription without a consumer: everything is its backlog.
    admin.call("PUT", path)
    scene = new_scene(
        {
            **ADAPTIVE,
            "overloadSignals": "brokers",
            "adaptivePublisherThrottlingBacklogLimitBytes": "10000000",
            # The memory of this broker is not what is looked at here.
            "adaptivePublisherThrottlingMemoryHighWatermarkPct": "1",
            "adaptivePublisherThrottlingMemoryLowWatermarkPct": "0.99",
        },
        topic,
    )
    scene.java("java", Load([topic], 2, **FAST))
    connections = scene.shown()("new_connections_total")
    scene.until(lambda: shown(scene, topic, "rate_reduction_ratio") > 0.75)
    assert shown(scene, topic, "backlog_pressure_ratio") > 0
    assert shown(scene, topic, "memory_pressure_ratio") == 0
    scene.until(lambda: all(tally.waiting > FAST["per_second"] for tally in scene.tallies().values()))
    admin.call("DELETE", f"{path}?force=true")
    scene.until(lambda: scene.shown()("adaptive_throttle_active_topic_count") == 0)
    scene.caught_up()
    scene.end_of_sending()
    assert scene.shown()("new_connections_total") == connections
    made = scene.decisions("adaptive")
    assert made[0]["throttle_action"] == "activate"
    assert made[-1]["throttle_action"] == "deactivate"
    check_release(made[:-1])


def shown(scene: Scene, topic: str, what: str) -> float:
    return scene.shown().samples.get((f"pulsar_proxy_topic_adaptive_throttle_{what}", frozenset({("topic", topic)})), 0)


def check_release(made: list[dict[str, Any]]) -> None:
    """Hold the cycles without pressure, all before that in which the limit goes, to the promise."""
    back = [event for event in made if event["throttle_pressure_permille"] == 0]
    assert 0 < len(back) <= MOST_CYCLES
    # What held the topic up taught nothing of what it sends by itself.
    assert back[0]["natural_bytes_per_second"] > 0.5 * made[0]["natural_bytes_per_second"]
    assert back[-1]["allowed_bytes_per_second"] >= 0.999 * back[-1]["natural_bytes_per_second"]
