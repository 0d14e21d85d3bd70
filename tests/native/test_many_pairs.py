"""Pairs in numbers: as many as there are descriptors for, and a thousand that have nothing to do.

A tenth of the pairs is made, all of them with PULSAR_PROXY_TEST_PAIRS=all. The far ends are this process's, too: a pair
takes four descriptors here and two in a proxy.
"""

import math
import os
import resource
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from proxy.core.descriptors import raise_descriptor_limit
from tests.native.relays import ENDED, TO_BROKER, TO_CLIENT, Pair, Relays, received
from tests.support.patience import patient

MOST_PAIRS = 20_000
DESCRIPTORS_A_PAIR = 4
# For the interpreter, the tests and the engine.
OTHER_DESCRIPTORS = 200
SLICE_PAIRS = 500
EVENTS_A_STEP = 16
RATE = 8
# A thread that waits goes round once a second, and weighs 125 pairs in a round: 4 rounds for 500 pairs.
MOST_ROUNDS_A_SECOND = 5
# In n seconds it may begin n + 1 times: no more than 5 rounds a second from 4 seconds on.
WATCHED_SECONDS = 4


@pytest.fixture
def room() -> Iterator[int]:
    """Give the number of pairs that there are descriptors for."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_descriptor_limit()
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    left = most - len(os.listdir("/proc/self/fd")) - OTHER_DESCRIPTORS
    yield min(MOST_PAIRS, left // DESCRIPTORS_A_PAIR)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def descriptors() -> set[str]:
    return {name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}


def in_slices(extension: Any, engine: Any) -> list[tuple[int, ...]]:
    """Read the records of all pairs, a bounded number in each call."""
    layout, records = struct.Struct(extension.RECORD), list[tuple[int, ...]]()
    while True:
        part = list(layout.iter_unpack(engine.snapshot(records[-1][0] if records else 0, SLICE_PAIRS)))
        assert len(part) <= SLICE_PAIRS
        records += part
        if len(part) < SLICE_PAIRS:
            return records


@pytest.mark.timeout(600)
def test_as_many_pairs_as_there_are_descriptors_for_relay_and_end_and_leave_nothing(extension: Any, room: int) -> None:
    count = room if os.environ.get("PULSAR_PROXY_TEST_PAIRS") == "all" else room // 10
    before = descriptors()
    with Relays(extension, threads=2) as relays:
        pairs = [relays.join() for _ in range(count)]
        for pair in pairs:
            pair.client.sendall(b"?")
        for pair in pairs:
            assert received(pair.broker, 1) == b"?"
            pair.broker.sendall(b"!!")
        for pair in pairs:
            assert received(pair.client, 2) == b"!!"
        records = in_slices(extension, relays.engine)
        # Those of a later moment: the last byte may be read by its receiver before its sender has counted it.
        assert sorted(record[0] for record in records) == sorted(pair.id for pair in pairs)
        for number, pair in enumerate(pairs):
            if number % 3 == 0:
                relays.engine.abort(pair.id)
            elif number % 3 == 1:
                relays.engine.close(pair.id, 5_000)
            else:
                pair.client.close()
                pair.broker.close()
        ended = {(event := relays.event()).pair: event for _ in pairs}
        assert ended.keys() == {pair.id for pair in pairs}
        assert {event.kind for event in ended.values()} == {ENDED}
        # The last bytes are in the books of the end.
        assert {(event.c, event.d) for event in ended.values()} == {(1, 2)}
        assert relays.engine.snapshot() == b""
        assert relays.engine.events(EVENTS_A_STEP) == []
    del relays, pairs, pair
    assert descriptors() - before == set()


def has_nothing_to_do(relays: Relays, kind: int) -> Pair:
    """Make a pair that is at rest, paused, half closed, or stopped."""
    pair = relays.join()
    if kind == 1:
        relays.engine.pause(pair.id, TO_BROKER, RATE)
        pair.client.sendall(b"unread")
    elif kind == 2:
        pair.client.shutdown(socket.SHUT_WR)
    elif kind == 3:
        # Both FINs, one of them behind a pause: the kernel calls that a hang-up.
        relays.engine.pause(pair.id, TO_CLIENT, RATE)
        pair.client.shutdown(socket.SHUT_WR)
        pair.broker.sendall(b"unread")
        pair.broker.shutdown(socket.SHUT_WR)
    elif kind == 4:
        pair.client.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                pair.client.send(bytes(65_536))
    return pair


def rounds_in_a_second(both: tuple[Relays, Relays]) -> int:
    """Count how often the thread that is busier goes round in a second, as the mean of some."""
    before, began = [relays.engine.rounds()[0] for relays in both], time.monotonic()
    time.sleep(WATCHED_SECONDS)
    gone: list[int] = [relays.engine.rounds()[0] - then for relays, then in zip(both, before, strict=True)]
    return math.ceil(max(gone) / (time.monotonic() - began))


def test_a_thousand_pairs_without_anything_to_do_wake_no_thread(extension: Any, room: int) -> None:
    # Two engines of one thread: how one with two divides its pairs depends on when they come.
    with Relays(extension, threads=1) as one, Relays(extension, threads=1) as other:
        both = one, other
        pairs = [has_nothing_to_do(both[number % 2], number % 5) for number in range(min(1_000, room))]
        # Behind the last news of the kernel; a stuck pipe is given back after a second, once.
        until = time.monotonic() + patient(30)
        while (rounds := rounds_in_a_second(both)) > MOST_ROUNDS_A_SECOND and time.monotonic() < until:
            pass
        assert rounds <= MOST_ROUNDS_A_SECOND
        assert [relays.engine.events(EVENTS_A_STEP) for relays in both] == [[], []]
        # They are alive all the same.
        other.engine.resume(pairs[1].id, TO_BROKER, RATE)
        assert received(pairs[1].broker, 6) == b"unread"
