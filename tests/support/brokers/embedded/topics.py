"""The topics of an embedded broker, and the answer to a topic-list request: mode, pattern and hash (PIP-145).

Rule: as in Pulsar's broker, a pattern is matched against the whole name without domain and `-partition-N`, and a
pattern above 50 characters is left to the client. This module does no I/O.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from protocol.errors import ServerError
from protocol.frames import varint
from protocol.pb import PulsarApi_pb2 as pb
from proxy.cli.demo import broker as demo
from tests.support.brokers.embedded.names import GeneratedNames, ListedNames, TopicNames

LONGEST_PATTERN: Final = 50
DOMAINS: Final = ("persistent", "non-persistent")
DEFAULT_NAMESPACE: Final = "public/default"
_FILTERED_TAG, _HASH_TAG, _CHANGED_TAG = b"\x18", b"\x22", b"\x28"
_PARTITION: Final = re.compile(r"-partition-\d+$")
_NAMESPACE: Final = re.compile(r"[-=:.\w]+/[-=:.\w]+", re.ASCII)
_NO_NAMES: Final = ListedNames(())


class BadRequest(Exception):
    """A request that a broker answers with an error of this code."""

    def __init__(self, message: str, code: int = ServerError.MetadataError) -> None:
        super().__init__(message)
        self.code = code


class DeadlyRequest(Exception):
    """A request after which Pulsar's broker 4.x closes the connection."""


class TopicStore(Protocol):
    """The topics of a broker."""

    def has_namespace(self, namespace: str) -> bool:
        """Return whether a namespace exists, with or without topics."""

    def names(self, namespace: str) -> TopicNames:
        """Return a namespace's topics; none for a namespace that does not exist."""

    def partitions(self, topic: str) -> int | None:
        """Return a topic's number of partitions; 0 if it has none, None if it does not exist."""


class ListedTopics:
    """Topics given by name; `partitioned` maps a topic to its number of partitions, which are listed one by one.

    The namespaces of all topics exist, and `public/default`, as in every Pulsar cluster.
    """

    def __init__(self, topics: Iterable[str] = (), partitioned: Mapping[str, int] | None = None) -> None:
        self._partitions = dict.fromkeys(topics, 0)
        for topic, count in (partitioned or {}).items():
            self._partitions[topic] = count
        self._namespaces: dict[str, TopicNames] = {}

    def add(self, topic: str) -> None:
        """Create a topic without partitions."""
        self._partitions[topic] = 0
        self._namespaces.clear()

    def has_namespace(self, namespace: str) -> bool:
        return namespace == DEFAULT_NAMESPACE or bool(self.names(namespace).count)

    def names(self, namespace: str) -> TopicNames:
        """Return a namespace's topics, each partition by its own name."""
        if namespace not in self._namespaces:
            # A namespace without topics is not cached: a client could name a million of them.
            names = ListedNames(self._names(namespace))
            if not names.count:
                return names
            self._namespaces[namespace] = names
        return self._namespaces[namespace]

    def partitions(self, topic: str) -> int | None:
        return self._partitions.get(topic)

    def _names(self, namespace: str) -> Iterator[str]:
        prefixes = tuple(f"{domain}://{namespace}/" for domain in DOMAINS)
        for topic, count in self._partitions.items():
            if topic.startswith(prefixes):
                yield from (f"{topic}-partition-{number}" for number in range(count)) if count else (topic,)


class GeneratedTopics(demo.GeneratedTopics):
    """The demo's topics as those of a whole broker."""

    def has_namespace(self, namespace: str) -> bool:
        return namespace == DEFAULT_NAMESPACE or namespace in self

    def names(self, namespace: str) -> TopicNames:
        return GeneratedNames(self, namespace) if namespace in self else _NO_NAMES

    def partitions(self, topic: str) -> int | None:
        return 0


class TopicListBody(NamedTuple):
    """The part of a topic-list answer that follows the request id."""

    rest_bytes: int
    pieces: Iterator[bytes]


def topic_list(store: TopicStore, request: pb.CommandGetTopicsOfNamespace) -> TopicListBody:
    """Return the answer to a topic-list request.

    Raises DeadlyRequest for an invalid namespace, BadRequest for an invalid pattern.
    """
    _check_namespace(request.namespace)
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


def watched_names(names: TopicNames, namespace: str, pattern: str) -> TopicNames:
    """Return the names that a watcher of a namespace and pattern sees: persistent topics only.

    Raises DeadlyRequest for an invalid namespace, BadRequest for an invalid pattern.
    """
    _check_namespace(namespace)
    if not isinstance(names, GeneratedNames):
        names = ListedNames(name for name in names if name.startswith(f"{DOMAINS[0]}://{namespace}/"))
    return _matching(names, pattern)


def namespace_of(topic: str) -> str | None:
    """Return a topic's namespace; None for an invalid topic name."""
    domain, scheme, rest = topic.rpartition("://")
    if not scheme and "/" not in rest:
        return DEFAULT_NAMESPACE if rest else None
    namespace, _, local = rest.rpartition("/") if rest.count("/") == 2 else ("", "", "")
    known = not scheme or domain in DOMAINS
    return namespace if known and local and _NAMESPACE.fullmatch(namespace) else None


def _check_namespace(namespace: str) -> None:
    if not _NAMESPACE.fullmatch(namespace):
        raise DeadlyRequest(f"invalid namespace: got {namespace!r}, expected tenant/namespace")


def _of_mode(names: TopicNames, mode: int) -> TopicNames:
    if isinstance(names, GeneratedNames):
        return _NO_NAMES if mode == pb.CommandGetTopicsOfNamespace.NON_PERSISTENT else names
    if mode == pb.CommandGetTopicsOfNamespace.ALL:
        return names
    wanted = f"{DOMAINS[mode == pb.CommandGetTopicsOfNamespace.NON_PERSISTENT]}://"
    return ListedNames(name for name in names if name.startswith(wanted))


def _matching(names: TopicNames, pattern: str) -> TopicNames:
    before, scheme, after = pattern.partition("://")
    if scheme:
        domain = next((domain for domain in reversed(DOMAINS) if before.endswith(domain)), None)
        if domain is None:
            raise BadRequest(f"invalid pattern: got domain {before!r}, expected one of {', '.join(DOMAINS)}")
        pattern = before.removesuffix(domain) + after
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
