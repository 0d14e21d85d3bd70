"""Write docs/reference/commands.md from the table of commands and the verdicts of protocol.states."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from scripts.command_table import COMMANDS, Row, Sender, Theme, from_broker, from_client, relayed
from scripts.generated import ROOT

TARGET: Final = ROOT / "docs/reference/commands.md"
HEAD: Final = """\
<!-- Written by scripts/generate_commands.py from scripts/command_table.py and protocol/states.py; do not edit here. -->

# Commands

Every command of Pulsar's binary protocol up to 5.0, and what the proxy does with it. A client has two kinds of
connections to a proxy:

- **A lookup connection** (CONNECT without a broker) is the proxy's own: it answers what a client asks before it knows a
  broker. *Refused by name* is `ERROR NotAllowedError: command NEW_TXN is not served on a proxy's lookup connection`,
  with the request id of the command, or -1 if it has none; the connection lives. A number that no release knows is
  refused as `number 99`, with -1: nobody knows which of its fields is a request id, if one is. What only brokers send
  is refused, too.
- **A relayed connection** (CONNECT names a broker) carries whatever both sides send, unchanged, known to the proxy or
  not. It is where clients produce, consume, watch, and speak with transaction coordinators.

*From brokers* is what may come on the connections on which the proxy asks its own questions.

Which commands a client uses is settled by what CONNECTED promises: on a lookup connection none of watchers, scalable
topics or assignments of coordinators, on a relayed one what the broker promises.

**Transactions** need nothing of the proxy but lookups and relays: a client looks up the topics of
`pulsar/system/transaction_coordinator_assign` and speaks with each coordinator on a relayed connection. Run with real
clients in Java and Go ([support](../support.md)).

**Geo-replication** has one command of its own, TOPIC_MIGRATED. A replicator is a client of the other cluster: it looks
topics up, asks for their partitions and schemas, and sends messages that say where they come from; so a proxy may stand
before the other cluster: the URLs that the cluster is registered with are the proxy's. Markers of replicated
subscriptions are messages. TOPIC_MIGRATED passes to the client with the address that the broker names, which must be
one that the client reaches.
"""


def render() -> str:
    """Return the whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield HEAD
    for theme in Theme:
        yield f"## {theme[0].upper()}{theme[1:]}\n"
        yield "| number | command | sent by | on a lookup connection | on a relayed connection | from brokers |"
        yield "|--:|---|---|---|---|---|"
        yield from map(_line, sorted((row for row in COMMANDS if row.theme is theme), key=lambda row: row.command))
        yield ""


def _line(row: Row) -> str:
    command = row.command
    answers = from_broker(command) if row.sender is not Sender.CLIENT else "-"
    cells = (str(command.value), f"`{command.name}`", row.sender, from_client(command), relayed(command), answers)
    return f"| {' | '.join(cells)} |"


def files() -> Mapping[Path, str]:
    return {TARGET: render()}
