"""docs/reference/commands.md has every command, and says what the state table says."""

from collections import Counter

import pytest

from protocol.command_type import CommandType
from protocol.pb import PulsarApi_pb2 as pb
from protocol.states import VERDICTS, Role, State, Verdict
from scripts import generate_commands
from scripts.command_table import COMMANDS, REFUSED, SERVED, TAKEN, Sender, Theme, from_client


def test_every_command_of_the_protocol_has_one_row() -> None:
    assert {kind.name: kind.value for kind in CommandType} == dict(pb.BaseCommand.Type.items())
    assert Counter(row.command for row in COMMANDS) == Counter(CommandType)


def served(role: Role, state: State) -> set[CommandType]:
    return {command for command, verdict in VERDICTS[role, state].items() if verdict is Verdict.SERVE}


def test_what_is_served_has_words_and_nothing_else_has() -> None:
    assert set(SERVED) == served(Role.CLIENT, State.LOOKUP)
    assert set(TAKEN) == served(Role.BROKER, State.READY)


@pytest.mark.parametrize("theme", [Theme.TRANSACTION, Theme.WATCH, Theme.GEO, Theme.SCALABLE, Theme.DISCOVERY])
def test_what_belongs_to_a_broker_is_refused_by_name_on_a_lookup_connection(theme: Theme) -> None:
    rows = [row for row in COMMANDS if row.theme is theme]
    assert rows
    assert {from_client(row.command) for row in rows} == {REFUSED}


def test_a_request_and_its_answer_have_opposite_senders() -> None:
    senders = {row.command.name: row.sender for row in COMMANDS}
    for name, sender in senders.items():
        if name.endswith("_RESPONSE") and name != "AUTH_RESPONSE" and name.removesuffix("_RESPONSE") in senders:
            assert (senders[name.removesuffix("_RESPONSE")], sender) == (Sender.CLIENT, Sender.BROKER)


def test_the_committed_page_is_what_the_tables_give() -> None:
    assert generate_commands.TARGET.read_text() == generate_commands.render()
