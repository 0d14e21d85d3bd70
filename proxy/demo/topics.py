"""Which topics an embedded broker has, and what a topic-list request makes of them: mode, pattern, hash (PIP-145).

Rule: a pattern is matched against the whole name, without domain and without `-partition-N`, and left to the client
above 50 characters; so does upstream's broker. Sans-IO; knows no connection.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from protocol.frames import varint
from protocol.pb import PulsarApi_pb2 as pb
from proxy.demo.names import GeneratedNames, ListedNames, Names, NameTemplate

LONGEST_PATTERN: Final = 50
DOMAINS: Final = ("persistent", "non-persistent")
_FILTERED_TAG, _HASH_TAG, _CHANGED_TAG = b"\x18", b"\x22", b"\x28"
_PARTITION: Final = re.compile(r"-partition-\d+$")
_NO_NAMES: Final = ListedNames(())


class BadRequest(Exception):
    """Report a request that a broker answers with an error."""


class TopicStore(Protocol):
    """The topics of a broker."""

    def names(self, namespace: str) -> Names:
        """Give a namespace's topics; none for a namespace that does not exist."""

    def partitions(self, topic: str) -> int | None:
        """Count a topic's partitions, 0 if it has none, None if it does not exist."""


class ListedTopics:
    """Topics given by name; `partitioned` says how many partitions a topic has, all of which are listed."""

    def __init__(self, topics: Iterable[str] = (), partitioned: Mapping[str, int] | None = None) -> None:
        self._partitions = dict.fromkeys(topics, 0)
        for topic, count in (partitioned or {}).items():
            self._partitions[topic] = count
        self._namespaces: dict[str, Names] = {}

    def add(self, topic: str) -> None:
        """Create a topic without partitions."""
        self._partitions[topic] = 0
        self._namespaces.clear()

    def names(self, namespace: str) -> Names:
        """Give a namespace's topics, each partition by its own name."""
        if namespace not in self._namespaces:
            # A namespace without topics is not kept: anybody can name a million of them.
            names = ListedNames(self._names(namespace))
            if not names.count:
                return names
            self._namespaces[namespace] = names
        return self._namespaces[namespace]

    def partitions(self, topic: str) -> int | None:
        """Count a topic's partitions, 0 if it has none, None if it does not exist."""
        return self._partitions.get(topic)

    def _names(self, namespace: str) -> Iterator[str]:
        prefixes = tuple(f"{domain}://{namespace}/" for domain in DOMAINS)
        for topic, count in self._partitions.items():
            if topic.startswith(prefixes):
                yield from (f"{topic}-partition-{number}" for number in range(count)) if count else (topic,)


class GeneratedTopics:
    """`namespaces` namespaces `demo/ns-0...` with `topics` persistent topics of `name_bytes` bytes each.

    Raises ValueError for a size into which the names do not fit.
    """

    def __init__(self, namespaces: int, topics: int, name_bytes: int) -> None:
        self.namespaces = namespaces
        self._digits = len(str(max(namespaces - 1, 0)))
        self._template = NameTemplate(topics, name_bytes, len(self.namespace(0)))
        self._number = re.compile(rf"demo/ns-(\d{{{self._digits}}})")

    def namespace(self, number: int) -> str:
        """Name a namespace."""
        return f"demo/ns-{number:0{self._digits}}"

    def names(self, namespace: str) -> Names:
        """Give a namespace's topics; none for a namespace that does not exist."""
        found = self._number.fullmatch(namespace)
        if found is None or int(found[1]) >= self.namespaces:
            return _NO_NAMES
        return GeneratedNames(self._template, namespace)

    def partitions(self, topic: str) -> int | None:
        """Count a topic's partitions: none has any."""
        return 0


class TopicListBody(NamedTuple):
    """What stands behind the request id of a topic-list answer."""

    rest_bytes: int
    pieces: Iterator[bytes]


def topic_list(store: TopicStore, request: pb.CommandGetTopicsOfNamespace) -> TopicListBody:
    """Answer a topic-list request; raises BadRequest for a namespace or a pattern that is none."""
    if not re.fullmatch(r"[\w.:=-]+/[\w.:=-]+(/[\w.:=-]+)?", request.namespace):
        raise BadRequest(f"invalid namespace: got {request.namespace!r}, expected tenant/namespace")
    names = _of_mode(store.names(request.namespace), request.mode)
    filtered = request.HasField("topics_pattern") and len(request.topics_pattern) <= LONGEST_PATTERN
    if filtered:
        names = _matching(names, request.topics_pattern)
    digits = names.hash()
    changed = request.topics_hash != digits
    if not changed:
        names = _NO_NAMES
    flags = _FILTERED_TAG + bytes([filtered]) + _HASH_TAG + varint(len(digits)) + digits.encode()
    flags += _CHANGED_TAG + bytes([changed])
    return TopicListBody(names.encoded_bytes + len(flags), _then(names.pieces(), flags))


def _of_mode(names: Names, mode: int) -> Names:
    if isinstance(names, GeneratedNames):
        return _NO_NAMES if mode == pb.CommandGetTopicsOfNamespace.NON_PERSISTENT else names
    if mode == pb.CommandGetTopicsOfNamespace.ALL:
        return names
    wanted = f"{DOMAINS[mode == pb.CommandGetTopicsOfNamespace.NON_PERSISTENT]}://"
    return ListedNames(name for name in names if name.startswith(wanted))


def _matching(names: Names, pattern: str) -> Names:
    before, scheme, behind = pattern.partition("://")
    if scheme:
        domain = next((domain for domain in reversed(DOMAINS) if before.endswith(domain)), None)
        if domain is None:
            raise BadRequest(f"invalid pattern: got domain {before!r}, expected one of {', '.join(DOMAINS)}")
        pattern = before.removesuffix(domain) + behind
    if pattern == ".*":
        return names
    try:
        matches = re.compile(pattern).fullmatch
    except re.error as error:
        raise BadRequest(f"invalid pattern {pattern!r}: {error}") from error
    return ListedNames(name for name in names if matches(_PARTITION.sub("", name.partition("://")[2])))


def _then(pieces: Iterator[bytes], last: bytes) -> Iterator[bytes]:
    yield from pieces
    yield last
