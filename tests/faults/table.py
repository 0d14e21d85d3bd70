"""The fault matrix as data: which flow stands for a stage, which cells there are, and why some make no sense.

Rule: nothing here runs anything. A cell without a reason is run; what its flow must end with is in `ends.py`.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from tests.faults.flows.events import EventTopic
from tests.faults.flows.flow import CLIENT_SIDE, SIDES, Flow
from tests.faults.flows.relays import Challenge, Echo, EchoOverTls, Handshake, TlsHandshake, Watch
from tests.faults.flows.requests import GroupedList, Lookup, PartitionMetadata, Schema, TopicList
from tests.faults.flows.web import Request, Upload, WebSocket
from tests.support.faults.kinds import Kind


class Stage(NamedTuple):
    """A stage of a flow."""

    name: str
    flow: type[Flow]


class Moment(StrEnum):
    """The direction in whose bytes the fault begins."""

    REQUEST = "request"
    ANSWER = "answer"


GENTLE: Final = (Kind.LATENCY, Kind.RATE, Kind.SLICE)
SUDDEN: Final = (Kind.RESET, Kind.HALF_CLOSE)
# Faults after which nothing comes any more: the proxy's clocks must end what stands still.
ENDLESS: Final = (Kind.DROP, Kind.HALF_OPEN, Kind.STOP)
STAGES: Final = (
    Stage("handshake", Handshake),
    Stage("lookup", Lookup),
    Stage("partition metadata", PartitionMetadata),
    Stage("schema", Schema),
    Stage("topic list alone", TopicList),
    Stage("topic list in a group", GroupedList),
    Stage("relay", Echo),
    Stage("watch", Watch),
    Stage("TLS handshake", TlsHandshake),
    Stage("relay over TLS", EchoOverTls),
    Stage("authentication challenge", Challenge),
    Stage("HTTP request", Request),
    Stage("upload", Upload),
    Stage("WebSocket", WebSocket),
    Stage("event topic", EventTopic),
)
BY_NAME: Final = {stage.name: stage for stage in STAGES}


class Cell(NamedTuple):
    """A place of the matrix."""

    stage: str
    kind: Kind
    side: str
    moment: Moment

    @property
    def name(self) -> str:
        return " / ".join(self)


def cells() -> Iterator[Cell]:
    """Yield every cell, those without sense, too."""
    for stage in STAGES:
        for kind in Kind:
            for side in SIDES:
                for moment in Moment:
                    yield Cell(stage.name, kind, side, moment)


def no_sense(cell: Cell) -> str | None:
    """Return why a cell is not run; None if it is."""
    if cell.stage == "event topic" and cell.side == CLIENT_SIDE:
        return "the proxy itself writes to the topic: there is no client on this way"
    return None


def to_run() -> list[Cell]:
    """Return the cells that are run."""
    return [cell for cell in cells() if no_sense(cell) is None]


def short_version() -> list[Cell]:
    """Return for each stage a fault of each sort; faults, sides and moments in turn."""
    found, cells_of = [], to_run()
    for number, stage in enumerate(STAGES):
        for sort, kinds in enumerate((GENTLE, SUDDEN, ENDLESS)):
            group = [cell for cell in cells_of if (cell.stage, cell.kind) == (stage.name, kinds[number % len(kinds)])]
            # Of four cells, the other side comes two further, another moment with the next stages.
            found.append(group[(3 * sort + number // 2) % len(group)])
    return found
