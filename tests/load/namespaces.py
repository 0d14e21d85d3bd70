"""Which namespaces are asked for, and by what part of the clients. Knows no client."""

import itertools
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

# "@" cannot be part of a namespace's name.
_WRITTEN: Final = re.compile(r"(?P<name>[-=:.\w]+/[-=:.\w]+)(?:@(?P<weight>[1-9]\d{0,3}))?", re.ASCII)


class Share(NamedTuple):
    """A namespace and its weight among the others."""

    namespace: str
    weight: int = 1


def parse_shares(text: str) -> tuple[Share, ...]:
    """Read `tenant/namespace[@weight],...`; raises ValueError."""
    shares = []
    for part in text.split(","):
        written = _WRITTEN.fullmatch(part.strip())
        if written is None:
            raise ValueError(f"got {part.strip()!r}, expected tenant/namespace or tenant/namespace@weight (1 to 9999)")
        shares.append(Share(written["name"], int(written["weight"] or 1)))
    return tuple(shares)


def rota(shares: tuple[Share, ...]) -> Iterator[str]:
    """Give a namespace to one client after the other, for ever; any full turn holds each as often as its weight."""
    # Sorted by the place of each share's own steps, so that a light tenant does not wait behind a whole heavy one.
    steps = sorted(((step + 0.5) / share.weight, share.namespace) for share in shares for step in range(share.weight))
    return itertools.cycle([namespace for _, namespace in steps])
