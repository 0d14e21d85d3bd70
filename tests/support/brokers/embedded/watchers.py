"""The topic-list watchers of a connection of the embedded broker: their start, their updates, their end.

Rule: answers are those of Pulsar's broker 4.x (PIP-179). A pattern that the broker may not evaluate is an error, an
equal hash gets no names, and a watcher id used again restarts the watcher. A connection has at most 1,000 watchers.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from protocol import commands
from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.frames import answer_prefix, varint
from protocol.pb import PulsarApi_pb2 as pb
from proxy.cli.demo.broker import PIECE_BYTES
from tests.support.brokers.embedded.names import ListedNames, TopicNames
from tests.support.brokers.embedded.topics import LONGEST_PATTERN, BadRequest, TopicStore, watched_names

MOST_WATCHERS: Final = 1000
_WATCHER_TAG, _TOPIC_TAG, _HASH_TAG = b"\x10", b"\x1a", b"\x22"


class _Watcher(NamedTuple):
    namespace: str
    pattern: str


class Watchers:
    """Answers the watch commands of a connection, and builds updates for its watchers."""

    def __init__(self, store: TopicStore) -> None:
        self._store = store
        self._watchers: dict[int, _Watcher] = {}

    def __len__(self) -> int:
        return len(self._watchers)

    def start(self, request: pb.CommandWatchTopicList) -> Iterator[bytes]:
        """Start a watcher and yield the answer with its names; raises DeadlyRequest for an invalid namespace."""
        try:
            names = self._started(request)
        except BadRequest as error:
            yield commands.error(request.request_id, error.code, str(error))
            return
        digits = names.hash()
        if request.topics_hash == digits:
            names = ListedNames(())
        first = _WATCHER_TAG + varint(request.watcher_id)
        last = _HASH_TAG + varint(len(digits)) + digits.encode()
        # The tag of a name is a single byte here as in a topic list, so the encoded size is the same.
        rest_bytes = len(first) + names.encoded_bytes + len(last)
        yield answer_prefix(CommandType.WATCH_TOPIC_LIST_SUCCESS, request.request_id, rest_bytes) + first
        yield from _pieces(names)
        yield last

    def close(self, request: pb.CommandWatchTopicListClose) -> bytes:
        """Remove a watcher and return the answer."""
        self._watchers.pop(request.watcher_id, None)
        command = pb.BaseCommand(type=pb.BaseCommand.SUCCESS)
        command.success.request_id = request.request_id
        return commands.frame(command)

    def updates(self, new: Iterable[str], deleted: Iterable[str]) -> Iterator[bytes]:
        """Yield the update frame of each watcher that matches any of these topics."""
        new, deleted = ListedNames(new), ListedNames(deleted)
        for watcher_id, watcher in self._watchers.items():
            command = pb.BaseCommand(type=pb.BaseCommand.WATCH_TOPIC_UPDATE)
            update = command.watchTopicUpdate
            update.watcher_id = watcher_id
            update.new_topics.extend(watched_names(new, *watcher))
            update.deleted_topics.extend(watched_names(deleted, *watcher))
            update.topics_hash = watched_names(self._store.names(watcher.namespace), *watcher).hash()
            if update.new_topics or update.deleted_topics:
                yield commands.frame(command)

    def _started(self, request: pb.CommandWatchTopicList) -> TopicNames:
        if len(request.topics_pattern) > LONGEST_PATTERN:
            raise BadRequest(
                f"topics pattern of {len(request.topics_pattern)} characters, at most {LONGEST_PATTERN} are evaluated",
                ServerError.NotAllowedError,
            )
        if len(self._watchers) >= MOST_WATCHERS and request.watcher_id not in self._watchers:
            raise BadRequest(
                f"the embedded broker keeps {MOST_WATCHERS} watchers a connection", ServerError.UnknownError
            )
        watcher = _Watcher(request.namespace, request.topics_pattern)
        try:
            names = watched_names(self._store.names(watcher.namespace), *watcher)
        except BadRequest as error:
            raise BadRequest(str(error), ServerError.InvalidTopicName) from error
        self._watchers[request.watcher_id] = watcher
        return names


def _pieces(names: Iterable[str]) -> Iterator[bytes]:
    gathered = bytearray()
    for name in names:
        encoded = name.encode()
        gathered += _TOPIC_TAG + varint(len(encoded)) + encoded
        if len(gathered) >= PIECE_BYTES:
            yield bytes(gathered)
            gathered.clear()
    yield bytes(gathered)
