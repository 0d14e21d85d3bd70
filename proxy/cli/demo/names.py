"""The topics of the demo's broker: names that are made while they are written, as a topic-list answer has them.

Rule: a namespace needs no memory of its own: all share a template, into which the namespace's name is inserted.
"""

import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Final

from protocol.frames import varint

PIECE_BYTES: Final = 64 * 1024
LARGEST_NAME_BYTES: Final = 4096
TOPICS_TAG: Final = b"\x12"
DOMAIN: Final = "persistent://"


class GeneratedTopics:
    """`namespaces` namespaces `demo/ns-0...` with `topics` persistent topics of `name_bytes` bytes each.

    `tails` are the names without domain and namespace. Raises ValueError for a size into which the names do not fit.
    """

    def __init__(self, namespaces: int, topics: int, name_bytes: int) -> None:
        self.namespaces = namespaces
        self._digits = len(str(max(namespaces - 1, 0)))
        self._number = re.compile(rf"demo/ns-(\d{{{self._digits}}})")
        digits = len(str(max(topics - 1, 0)))
        smallest = len(f"{DOMAIN}{self.namespace(0)}/t-") + digits
        if not smallest <= name_bytes <= LARGEST_NAME_BYTES:
            raise ValueError(f"got {name_bytes} name bytes, expected {smallest} to {LARGEST_NAME_BYTES}")
        width = name_bytes - len(DOMAIN + self.namespace(0))
        self.tails = [f"/t-{number:0{digits}}".ljust(width, "x") for number in range(topics)]
        head = TOPICS_TAG + varint(name_bytes)
        self.encoded_bytes = topics * (len(head) + name_bytes)
        step = max(1, PIECE_BYTES // (name_bytes + 4))
        # Each seam is the end of a name and the beginning of the next name, with the namespace left out between them.
        self._seams = [
            _seams(self.tails[start : start + step], head + DOMAIN.encode()) for start in range(0, topics, step)
        ]

    def namespace(self, number: int) -> str:
        """Return the name of a namespace."""
        return f"demo/ns-{number:0{self._digits}}"

    def __contains__(self, namespace: str) -> bool:
        found = self._number.fullmatch(namespace)
        return found is not None and int(found[1]) < self.namespaces

    def pieces(self, namespace: str) -> Iterator[bytes]:
        """Return an iterator of a namespace's encoded names, in pieces of about 64 KiB."""
        joint = namespace.encode()
        return (joint.join(seams) for seams in self._seams)

    def hash(self, namespace: str) -> bytes:
        """Return eight digits, equal for equal lists.

        They stand in for Pulsar's hash, which a client only sends back, and which takes 0.1 s for each megabyte.
        """
        return b"%08x" % zlib.crc32(f"{namespace} {len(self.tails)} {self.encoded_bytes}".encode())


def _seams(tails: Sequence[str], head: bytes) -> list[bytes]:
    encoded = [tail.encode() for tail in tails]
    return [head, *(tail + head for tail in encoded[:-1]), encoded[-1]]
