"""Own the frames that decoder tests feed: built by protobuf alone, never by the code under test."""

from collections.abc import Iterable, Iterator, Sequence

from protocol.framing import NEED_DATA, PAUSED, Event, FrameDecoder
from protocol.pb import PulsarApi_pb2 as pb
from protocol.slabs import SlabBody, SlabPool


def framed(command: bytes, payload: bytes = b"") -> bytes:
    """Put the two sizes in front of a command."""
    return (4 + len(command) + len(payload)).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command + payload


def ping() -> bytes:
    return framed(pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing()).SerializeToString())


def send(payload: bytes) -> bytes:
    """Frame a SEND, the command that has a payload."""
    command = pb.BaseCommand(type=pb.BaseCommand.SEND, send=pb.CommandSend(producer_id=1, sequence_id=2))
    return framed(command.SerializeToString(), payload)


def list_answer(
    request_id: int,
    topics: Sequence[str],
    filtered: bool | None = None,
    changed: bool | None = None,
    topics_hash: str | None = None,
) -> pb.BaseCommand:
    answer = pb.CommandGetTopicsOfNamespaceResponse(
        request_id=request_id, topics=topics, filtered=filtered, changed=changed, topics_hash=topics_hash
    )
    return pb.BaseCommand(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, getTopicsOfNamespaceResponse=answer)


def list_frame(
    request_id: int,
    topics: Sequence[str],
    filtered: bool | None = None,
    changed: bool | None = None,
    topics_hash: str | None = None,
) -> bytes:
    return framed(list_answer(request_id, topics, filtered, changed, topics_hash).SerializeToString())


def watch_success(watcher_id: int, topics: Sequence[str]) -> bytes:
    started = pb.CommandWatchTopicListSuccess(request_id=1, watcher_id=watcher_id, topic=topics, topics_hash="h")
    return framed(
        pb.BaseCommand(type=pb.BaseCommand.WATCH_TOPIC_LIST_SUCCESS, watchTopicListSuccess=started).SerializeToString()
    )


def watch_update(watcher_id: int, new_topics: Sequence[str], deleted_topics: Sequence[str] = ()) -> bytes:
    update = pb.CommandWatchTopicUpdate(
        watcher_id=watcher_id, new_topics=new_topics, deleted_topics=deleted_topics, topics_hash="h"
    )
    return framed(pb.BaseCommand(type=pb.BaseCommand.WATCH_TOPIC_UPDATE, watchTopicUpdate=update).SerializeToString())


def scalable_snapshot(watch_id: int, topics: Sequence[str]) -> bytes:
    return _scalable(pb.CommandWatchScalableTopicsUpdate(watch_id=watch_id, snapshot={"topics": topics}))


def scalable_diff(watch_id: int, added: Sequence[str], removed: Sequence[str] = ()) -> bytes:
    diff = pb.ScalableTopicsDiff(added=added, removed=removed)
    return _scalable(pb.CommandWatchScalableTopicsUpdate(watch_id=watch_id, diff=diff))


def _scalable(update: pb.CommandWatchScalableTopicsUpdate) -> bytes:
    command = pb.BaseCommand(type=pb.BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE, watchScalableTopicsUpdate=update)
    return framed(command.SerializeToString())


def pieces_of(data: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    """Cut `data` into pieces of the given sizes; what is left is the last one."""
    start = 0
    for size in sizes:
        if start >= len(data):
            return
        yield data[start : start + size]
        start += size
    if start < len(data):
        yield data[start:]


def drain(decoder: FrameDecoder) -> list[Event]:
    """Take all events that are there, without deciding anything."""
    events: list[Event] = []
    while (event := decoder.next_event()) is not NEED_DATA and event is not PAUSED:
        events.append(event)
    return events


class RecordingSink(SlabBody):
    """A body of `size` bytes that gives room for at most `step` bytes at a time."""

    def __init__(self, size: int, step: int = 7) -> None:
        super().__init__(size, SlabPool())
        self.step = step
        self.body = bytearray()
        self._place = bytearray()

    def writable(self) -> memoryview:
        self._place = bytearray(min(self.step, self.size - len(self.body)))
        return memoryview(self._place)

    def advance(self, count: int) -> None:
        self.body += self._place[:count]
