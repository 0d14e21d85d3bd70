"""Topic names of a namespace, encoded as the repeated field of a topic-list answer.

Rule: encoded names are made while they are written, in pieces of about 64 KiB at most. A generated namespace needs no
memory of its own: all namespaces share a template, into which the namespace's name is inserted.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

from protocol.frames import varint
from protocol.topics_hash import java_order, topics_hash

PIECE_BYTES: Final = 64 * 1024
LARGEST_NAME_BYTES: Final = 4096
_TOPICS_TAG: Final = b"\x12"
_DOMAIN: Final = b"persistent://"


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


class NameTemplate:
    """`topics` names of exactly `name_bytes` bytes each, for any namespace whose name has `namespace_chars` characters.

    Raises ValueError for a size into which the names do not fit.
    """

    def __init__(self, topics: int, name_bytes: int, namespace_chars: int) -> None:
        digits = len(str(max(topics - 1, 0)))
        padding = name_bytes - len(_DOMAIN) - namespace_chars - len("/t-") - digits
        smallest = name_bytes - padding
        if padding < 0 or name_bytes > LARGEST_NAME_BYTES:
            raise ValueError(f"got {name_bytes} name bytes, expected {smallest} to {LARGEST_NAME_BYTES}")
        self.count = topics
        head = _TOPICS_TAG + varint(name_bytes) + _DOMAIN
        self.encoded_bytes = topics * (len(_TOPICS_TAG + varint(name_bytes)) + name_bytes)
        self._tails = [f"/t-{number:0{digits}}".ljust(padding + digits + 3, "x") for number in range(topics)]
        step = max(1, PIECE_BYTES // (name_bytes + 4))
        # Each seam is the end of a name and the beginning of the next name, with the namespace left out between them.
        self._seams = [_seams(self._tails[start : start + step], head) for start in range(0, topics, step)]

    def pieces(self, namespace: str) -> Iterator[bytes]:
        """Return an iterator of a namespace's encoded names, piece by piece."""
        joint = namespace.encode()
        return (joint.join(seams) for seams in self._seams)

    def names(self, namespace: str) -> Iterator[str]:
        """Return an iterator of a namespace's names."""
        prefix = _DOMAIN.decode() + namespace
        return (prefix + tail for tail in self._tails)


class GeneratedNames:
    """The names of a template in a namespace.

    The hash is a stand-in: a client only sends it back, and the real hash would cost 0.1 s for each megabyte.
    """

    def __init__(self, template: NameTemplate, namespace: str) -> None:
        self._template = template
        self._namespace = namespace
        self.count = template.count
        self.encoded_bytes = template.encoded_bytes

    def hash(self) -> str:
        """Return eight digits, equal for equal lists."""
        return f"{zlib.crc32(f'{self._namespace} {self.count} {self.encoded_bytes}'.encode()):08x}"

    def pieces(self) -> Iterator[bytes]:
        return self._template.pieces(self._namespace)

    def __iter__(self) -> Iterator[str]:
        return self._template.names(self._namespace)


def _encoded(name: str) -> bytes:
    encoded = name.encode()
    return _TOPICS_TAG + varint(len(encoded)) + encoded


def _seams(tails: Sequence[str], head: bytes) -> list[bytes]:
    encoded = [tail.encode() for tail in tails]
    return [head, *(tail + head for tail in encoded[:-1]), encoded[-1]]
