"""The plant: bytes of producers pass the token buckets of the proxies and fill the broker, which drains them.

memory' = sum of min(offered, allowed) - drain. Each proxy sees its share of each topic and sets its own rates; the
signal is late by `delay` seconds. Buckets keep their tokens when a rate changes, as those of the relay engines do.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from benchmarks.throttle_sim.shapes import Shape
from proxy.overload.adaptive import AdaptiveSettings, AdaptiveThrottle
from proxy.overload.samples import BacklogSample, Marks
from proxy.overload.topic_choice import TopicChoice
from proxy.relay.topic_slots import SlotSample

STEP_SECONDS: Final = 0.1
LIMIT_BYTES: Final = 2e9
AT_REST_BYTES: Final = 0.5e9
MESSAGE_BYTES: Final = 1000
CAPACITY_SECONDS: Final = 0.25
LEAST_CAPACITY: Final = 65_536.0
SETTINGS: Final = AdaptiveSettings(
    interval_seconds=1.0, memory=Marks(0.85, 0.70), backlog=Marks(0.90, 0.75), backlog_limit_bytes=0,
    min_rate_factor=0.10, max_rate_change=0.25, shares_by_bytes=False, observe_only=False,
    topics=TopicChoice(("*",), ()),
)  # fmt: skip


@dataclass(slots=True)
class Bucket:
    """The tokens of a topic in one proxy."""

    rate: float | None = None
    tokens: float = 0.0
    ran_dry: bool = False
    passed: float = 0.0

    def take(self, wanted: float, seconds: float) -> float:
        """Return the bytes that pass of those wanted."""
        if self.rate is None:
            self.passed += wanted
            return wanted
        most = max(CAPACITY_SECONDS * self.rate, LEAST_CAPACITY)
        self.tokens = min(most, self.tokens + self.rate * seconds)
        found = max(0.0, min(wanted, self.tokens))
        self.ran_dry |= found < wanted
        self.tokens -= found
        self.passed += found
        return found


@dataclass(slots=True)
class Point:
    """A second of a run; rates are sums over all topics and proxies, in bytes a second."""

    at: float
    ratio: float
    pressure: float
    offered: float
    passed: float
    natural: float
    allowed: float


class SimulatedProxy:
    """A proxy with its controller and its buckets."""

    def __init__(self, settings: AdaptiveSettings) -> None:
        self.throttle = AdaptiveThrottle(settings)
        self.buckets: dict[str, Bucket] = {}
        self._slots: dict[str, int] = {}

    def pass_on(self, topic: str, wanted: float) -> float:
        """Return the bytes of a topic that pass in one step."""
        self._slots.setdefault(topic, len(self._slots))
        return self.buckets.setdefault(topic, Bucket()).take(wanted, STEP_SECONDS)

    def evaluate(self, now: float, ratio: float, backlogs: Mapping[str, BacklogSample]) -> None:
        """Ask the controller for a decision, and set its rates."""
        samples = [
            SlotSample(self._slots[name], name, int(each.passed), int(each.passed / MESSAGE_BYTES), each.ran_dry, 1)
            for name, each in self.buckets.items()
        ]
        names = list(self.buckets)
        for each in self.buckets.values():
            each.ran_dry = False
        for made in self.throttle.evaluate(now, ratio, samples, backlogs):
            if made is not None and made.applies:
                self.buckets[names[made.slot]].rate = made.bytes_rate

    def rates(self) -> tuple[float, float]:
        """Return the sums of natural and of allowed rates."""
        topics = self.throttle.topics.values()
        allowed = sum(each.natural_bytes if each.bytes_rate is None else each.bytes_rate for each in topics)
        return sum(each.natural_bytes for each in topics), allowed


@dataclass
class Run:
    """A run of a shape through some proxies; `play` returns a point for each second."""

    shape: Shape
    proxies: int = 1
    delay: float = 1.0
    throttled: bool = True
    # The part of each topic that each proxy sees at a time; None is equal parts.
    parts: Callable[[float], Sequence[float]] | None = None
    held: dict[str, float] = field(default_factory=dict)

    def play(self) -> list[Point]:
        """Return the points of the run, and of each second the state at its end."""
        settings = replace(SETTINGS, shares_by_bytes=self.shape.shares_by_bytes, observe_only=not self.throttled)
        proxies = [SimulatedProxy(settings) for _ in range(self.proxies)]
        late: deque[dict[str, float]] = deque([{}], maxlen=max(1, round(self.delay / STEP_SECONDS)))
        points = []
        for second in range(self.shape.seconds):
            passed = offered = 0.0
            for step in range(round(1 / STEP_SECONDS)):
                found = self._step(proxies, second + step * STEP_SECONDS)
                offered, passed = offered + found[0], passed + found[1]
                late.append(dict(self.held))
            seen = late[0]
            for number, proxy in enumerate(proxies):
                # Clocks of several proxies do not tick together.
                proxy.evaluate(second + 1 + number / len(proxies) / 2, self._ratio(seen), self._backlogs(seen))
            points.append(self._point(second + 1, proxies, offered, passed))
        return points

    def _step(self, proxies: list[SimulatedProxy], now: float) -> tuple[float, float]:
        """Move the bytes of one step; return what was offered and what passed."""
        offered = passed = 0.0
        parts = [1 / len(proxies)] * len(proxies) if self.parts is None else self.parts(now)
        for topic, rate in self.shape.offered(now).items():
            wanted = rate * STEP_SECONDS
            found = sum(proxy.pass_on(topic, wanted * part) for proxy, part in zip(proxies, parts, strict=True))
            self.held[topic] = self.held.get(topic, 0.0) + found
            offered, passed = offered + wanted, passed + found
        self._drain()
        return offered, passed

    def _drain(self) -> None:
        drained = self.shape.drain * STEP_SECONDS
        total = sum(self.held.values())
        for topic, held in self.held.items():
            if not self.shape.quota_bytes:
                self.held[topic] = held * max(0.0, 1 - drained / total) if total else 0.0
            else:
                # Each topic has consumers of its own; only those of one are slow.
                self.held[topic] = max(0.0, held - drained) if topic == "slow" else 0.0

    def _ratio(self, held: Mapping[str, float]) -> float:
        used = AT_REST_BYTES + (0 if self.shape.quota_bytes else sum(held.values()))
        return used / LIMIT_BYTES

    def _backlogs(self, held: Mapping[str, float]) -> Mapping[str, BacklogSample]:
        quota = self.shape.quota_bytes
        return {topic: BacklogSample(int(each), int(quota)) for topic, each in held.items()} if quota else {}

    def _point(self, at: float, proxies: list[SimulatedProxy], offered: float, passed: float) -> Point:
        quota = self.shape.quota_bytes
        if quota:
            ratio = self.held.get("slow", 0.0) / quota
            pressure = SETTINGS.backlog.pressure(ratio)
        else:
            ratio = self._ratio(self.held)
            pressure = SETTINGS.memory.pressure(ratio)
        rates = [proxy.rates() for proxy in proxies]
        return Point(
            at, ratio, pressure, offered, passed, sum(natural for natural, _ in rates), sum(rate for _, rate in rates)
        )
