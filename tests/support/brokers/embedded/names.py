"""Topic names of a namespace, encoded as the repeated field of a topic-list answer.

Rule: encoded names are made while they are written, in pieces of about 64 KiB at most.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

from protocol.frames import varint
from protocol.topics_hash import java_order, topics_hash
from proxy.cli.demo.broker import DOMAIN, LARGEST_NAME_BYTES, PIECE_BYTES, GeneratedTopics

_TOPICS_TAG = b"\x12"


class TopicNames(Protocol):
    """Topic names that can be encoded piece by piece."""

    count: int
    encoded_bytes: int

    def hash(self) -> str:
        """Return the hash with which a client asks whether the list has changed."""

    def pieces(self) -> Iterator[bytes]:
        """Yield the encoded names, piece by piece."""

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""


class ListedNames:
    """Names held in memory, with the hash that Pulsar computes."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = java_order(names)
        self._hash: str | None = None
        self.count = len(self._names)
        self.encoded_bytes = sum(len(_encoded(name)) for name in self._names)

    def hash(self) -> str:
        """Return the hash of PIP-145, computed at the first call."""
        if self._hash is None:
            self._hash = topics_hash(self._names)
        return self._hash

    def pieces(self) -> Iterator[bytes]:
        """Yield the encoded names in pieces of at most `PIECE_BYTES`."""
        gathered, size = [], 0
        for name in self._names:
            encoded = _encoded(name)
            gathered.append(encoded)
            size += len(encoded)
            if size >= PIECE_BYTES - LARGEST_NAME_BYTES:
                yield b"".join(gathered)
                gathered, size = [], 0
        yield b"".join(gathered)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)


class GeneratedNames:
    """The names of a namespace of the demo's topics, with the demo's hash."""

    def __init__(self, topics: GeneratedTopics, namespace: str) -> None:
        self._topics = topics
        self._namespace = namespace
        self.count = len(topics.tails)
        self.encoded_bytes = topics.encoded_bytes

    def hash(self) -> str:
        """Return eight digits, equal for equal lists."""
        return self._topics.hash(self._namespace)

    def pieces(self) -> Iterator[bytes]:
        return self._topics.pieces(self._namespace)

    def __iter__(self) -> Iterator[str]:
        return (f"{DOMAIN}{self._namespace}{tail}" for tail in self._topics.tails)


def _encoded(name: str) -> bytes:
    encoded = name.encode()
    return _TOPICS_TAG + varint(len(encoded)) + encoded
