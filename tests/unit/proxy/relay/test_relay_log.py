"""What is shown of relayed connections, and that nothing of it grows without end."""

import io
import json
from typing import Any

import pytest

from protocol.pb import PulsarApi_pb2 as pb
from proxy.core.log import open_log
from proxy.relay.engine import Direction
from proxy.relay.relay_log import LINES_PER_SECOND, LONGEST_TOPIC, MOST_NAMES, MOST_NAMES_IN_ALL, RelayLog, RelayTap
from proxy.relay.topic_rates import IDLE_SECONDS, MOST_TOPICS, WINDOW_SECONDS, TopicRates
from tests.support.loops.clock import ManualClock
from tests.support.sockets.frames import framed, ping
from tests.support.sockets.producer_frames import close_frame, producer_frame, send_frame
from tests.unit.protocol.test_command_head import message

TOPIC = "persistent://a/b/c"


class Shown:
    def __init__(self, level: int) -> None:
        self.clock = ManualClock(1_000.0)
        self._file = io.BytesIO()
        self.log = RelayLog(open_log("info", "json", self._file), self.clock.time, level)

    def tap(self) -> RelayTap:
        tap = self.log.tap("10.0.0.7:51234", "10.0.0.9:6650")
        assert tap is not None
        return tap

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._file.getvalue().splitlines()]

    def rates(self) -> dict[str, Any]:
        self.clock.advance(WINDOW_SECONDS)
        self.log.tick(self.clock.time())
        return {name: dict(rates) for name, rates in self.log.rates.document().items()}


def producer(number: int = 1, topic: str = TOPIC) -> bytes:
    return producer_frame(topic.encode(), number)


def subscribe(number: int = 3, topic: str = TOPIC) -> bytes:
    made = pb.CommandSubscribe(
        topic=topic, consumer_id=number, request_id=1, subscription="s", subType=pb.CommandSubscribe.Shared
    )
    return framed(pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE, subscribe=made).SerializeToString())


def sent(number: int = 1, payload: bytes = b"payload") -> bytes:
    return send_frame(number, payload=payload)


def consumer_closed(number: int) -> bytes:
    made = pb.BaseCommand(type=pb.BaseCommand.CLOSE_CONSUMER)
    made.close_consumer.consumer_id, made.close_consumer.request_id = number, 1
    return framed(made.SerializeToString())


def auth_response(data: bytes) -> bytes:
    made = pb.CommandAuthResponse(response=pb.AuthData(auth_method_name="token", auth_data=data))
    return framed(pb.BaseCommand(type=pb.BaseCommand.AUTH_RESPONSE, authResponse=made).SerializeToString())


def to_broker(tap: RelayTap, *frames: bytes) -> None:
    for frame in frames:
        tap.show(Direction.TO_BROKER, frame)


def to_client(tap: RelayTap, *frames: bytes) -> None:
    for frame in frames:
        tap.show(Direction.TO_CLIENT, frame)


def test_level_0_looks_at_nothing() -> None:
    assert Shown(0).log.tap("a", "b") is None


def test_level_1_names_each_command_and_what_it_is_about() -> None:
    shown = Shown(1)
    tap = shown.tap()
    to_broker(tap, producer(), sent(), ping())
    to_client(tap, ping())
    lines = shown.lines()
    assert [(line["command"], line["direction"], line.get("topic")) for line in lines] == [
        ("PRODUCER", "to_broker", TOPIC),
        ("SEND", "to_broker", TOPIC),
        ("PING", "to_broker", None),
        ("PING", "to_client", None),
    ]
    assert lines[1] | {"time": ""} == {
        "time": "",
        "level": "info",
        "event": "relayed command",
        "command": "SEND",
        "direction": "to_broker",
        "bytes": len(sent()),
        "client": "10.0.0.7:51234",
        "broker": "10.0.0.9:6650",
        "topic": TOPIC,
    }
    assert not shown.rates()


@pytest.mark.threat("payload-in-log")
def test_neither_payloads_nor_credentials_are_ever_written() -> None:
    shown = Shown(2)
    to_broker(shown.tap(), producer(), sent(payload=b"hush"), auth_response(b"hush"))
    assert [line["command"] for line in shown.lines()] == ["PRODUCER", "SEND", "AUTH_RESPONSE"]
    assert "hush" not in str(shown.lines())


@pytest.mark.threat("refusal-log-storm")
def test_lines_are_paced_for_all_and_say_for_how_many_they_stand() -> None:
    shown = Shown(1)
    for tap in (shown.tap(), shown.tap()):
        to_broker(tap, *[ping()] * LINES_PER_SECOND)
    assert len(shown.lines()) == LINES_PER_SECOND
    shown.clock.advance(1.0)
    to_broker(shown.tap(), ping(), ping())
    later = shown.lines()[LINES_PER_SECOND:]
    assert [line.get("commands_since_last_line") for line in later] == [LINES_PER_SECOND, None]


def test_level_2_gives_the_rates_of_topics_in_both_directions() -> None:
    shown = Shown(2)
    tap = shown.tap()
    to_broker(tap, producer(), subscribe(3), *[sent(payload=b"x" * 90)] * 10)
    to_client(tap, message(17, b"payload"))
    size = len(message(17, b"payload"))
    (rates,) = shown.rates().values()
    assert rates["msgRateIn"] == 10 / WINDOW_SECONDS
    assert rates["msgByteIn"] == 900 / WINDOW_SECONDS
    assert rates["msgRateOut"] == 17 / WINDOW_SECONDS
    assert 0 < rates["msgByteOut"] < size / WINDOW_SECONDS
    assert shown.rates()[TOPIC] == {"msgRateIn": 0, "msgByteIn": 0, "msgRateOut": 0, "msgByteOut": 0}


def test_a_relay_keeps_the_level_it_began_with_but_rates_end_at_once() -> None:
    shown = Shown(2)
    tap = shown.tap()
    to_broker(tap, producer(), sent())
    shown.log.set_level(0)
    to_broker(tap, sent())
    assert not shown.rates()
    assert len(shown.lines()) == 3
    assert shown.log.tap("a", "b") is None
    shown.log.set_level(1)
    younger = shown.tap()
    shown.log.set_level(2)
    to_broker(younger, producer(), sent())
    assert not shown.rates()
    to_broker(tap, sent())
    assert shown.rates()


@pytest.mark.parametrize("who", ["client", "broker"])
def test_closed_producers_and_consumers_leave_nothing_behind(who: str) -> None:
    tap = Shown(2).tap()
    pass_on = to_broker if who == "client" else to_client
    for number in range(10_000):
        to_broker(tap, producer(number), subscribe(number))
        assert tap.names == 2
        pass_on(tap, close_frame(number), consumer_closed(number))
    assert tap.names == 0


@pytest.mark.threat("logged-topics-without-end")
def test_one_connection_keeps_only_so_many_names_and_no_long_ones() -> None:
    shown = Shown(2)
    tap = shown.tap()
    for number in range(MOST_NAMES + 100):
        to_broker(tap, producer(number, f"{number:03}" + "t" * 600))
    assert tap.names == MOST_NAMES
    to_broker(tap, producer(0, "another"), sent(0), sent(1), sent(MOST_NAMES + 50))
    assert {len(topic) for topic in shown.rates()} == {len("another"), LONGEST_TOPIC}


def test_all_connections_together_keep_only_so_many_names_and_give_them_back() -> None:
    shown = Shown(2)
    taps = [shown.tap() for _ in range(MOST_NAMES_IN_ALL // MOST_NAMES + 1)]
    for tap in taps:
        to_broker(tap, *[subscribe(number) for number in range(MOST_NAMES)])
    assert shown.log.names == MOST_NAMES_IN_ALL
    assert taps[-1].names == 0
    taps[0].close()
    to_broker(taps[-1], subscribe(1), subscribe(1), producer(1), close_frame(1), close_frame(1))
    assert taps[-1].names == 1
    for tap in taps:
        tap.close()
    assert shown.log.names == 0


def test_a_client_cannot_name_topics_for_others() -> None:
    tap = Shown(2).tap()
    to_client(tap, producer(), subscribe())
    assert tap.names == 0


def test_bytes_that_are_no_commands_are_passed_over() -> None:
    shown = Shown(2)
    tap = shown.tap()
    to_broker(tap, framed(b"\x08\x05\xff\xff\xff\xff"), framed(b"\x08\x06"), framed(b"\xff" * 100))
    assert [line["command"] for line in shown.lines()] == ["PRODUCER", "SEND", "number 0"]
    assert tap.names == 0


# --- the table of rates ---------------------------------------------------------------------------


def test_the_table_is_bounded_and_the_one_silent_for_longest_makes_room() -> None:
    rates = TopicRates(0.0)
    for number in range(MOST_TOPICS):
        rates.produced(f"t{number}", 1, 1, 0.0)
    rates.consumed("t0", 1, 1, 1.0)
    rates.produced("new", 1, 1, 2.0)
    assert len(rates) == MOST_TOPICS
    assert {"t0", "new"} <= set(rates.document())
    assert "t1" not in rates.document()


def test_a_silent_topic_is_forgotten() -> None:
    rates = TopicRates(0.0)
    rates.produced("old", 1, 1, 0.0)
    rates.produced("young", 1, 1, 30.0)
    rates.tick(IDLE_SECONDS - 1)
    assert set(rates.document()) == {"old", "young"}
    rates.tick(IDLE_SECONDS + WINDOW_SECONDS)
    assert set(rates.document()) == {"young"}
