import re

import pytest

from protocol.command_type import CommandType
from protocol.errors import LocalProtocolError
from protocol.states import (
    DEFAULT_VERDICTS,
    MEANING,
    START,
    TRANSITIONS,
    VERDICTS,
    ConnectionState,
    Role,
    State,
    Verdict,
)
from tests.support.each import each

UNKNOWN = 9999


def connection(role: Role, *path: State) -> ConnectionState:
    state = ConnectionState(role)
    for step in path:
        state.enter(step)
    return state


def client(*path: State) -> ConnectionState:
    return connection(Role.CLIENT, *path)


def broker(*path: State) -> ConnectionState:
    return connection(Role.BROKER, *path)


LOOKUP = (State.CONNECTING, State.LOOKUP)


def test_client_may_begin_with_connect() -> None:
    assert client().judge(CommandType.CONNECT) is Verdict.SERVE


@each("command", [*set(CommandType) - {CommandType.CONNECT}, UNKNOWN])
def test_anything_before_connect_closes(command: int) -> None:
    state = client()
    assert state.judge(command) is Verdict.CLOSE
    assert state.close_cause(command) == "command_before_connect"


@each(
    "path",
    [(State.CONNECTING,), LOOKUP, (State.CONNECTING, State.CONNECTING_TO_BROKER)],
)
def test_second_connect_closes(path: tuple[State, ...]) -> None:
    state = client(*path)
    assert state.judge(CommandType.CONNECT) is Verdict.CLOSE
    assert state.close_cause(CommandType.CONNECT) == "second_connect"


@each("path", [(State.CONNECTING,), (State.CONNECTING, State.CONNECTING_TO_BROKER)])
def test_request_before_connected_closes(path: tuple[State, ...]) -> None:
    state = client(*path)
    assert state.judge(CommandType.PRODUCER) is Verdict.CLOSE
    assert state.close_cause(CommandType.PRODUCER) == "command_before_connected"


SERVED = {
    CommandType.LOOKUP,
    CommandType.PARTITIONED_METADATA,
    CommandType.GET_TOPICS_OF_NAMESPACE,
    CommandType.GET_SCHEMA,
    CommandType.GET_OR_CREATE_SCHEMA,
    CommandType.AUTH_RESPONSE,
    CommandType.PING,
    CommandType.PONG,
}


@each("command", SERVED)
def test_lookup_mode_serves(command: CommandType) -> None:
    assert client(*LOOKUP).judge(command) is Verdict.SERVE


@each("command", [*set(CommandType) - SERVED - {CommandType.CONNECT}, UNKNOWN])
def test_lookup_mode_refuses_all_else_and_lives(command: int) -> None:
    assert client(*LOOKUP).judge(command) is Verdict.REFUSE


@each("command", [*CommandType, UNKNOWN])
def test_relay_passes_everything(command: int) -> None:
    assert client(State.CONNECTING, State.CONNECTING_TO_BROKER, State.RELAY).judge(command) is Verdict.SERVE
    assert broker(State.RELAY).judge(command) is Verdict.SERVE


@each("end", [State.CLOSING, State.CLOSED])
def test_ending_connection_hears_nothing(end: State) -> None:
    assert client(*LOOKUP, end).judge(CommandType.LOOKUP) is Verdict.DROP


@each("command", [CommandType.CONNECTED, CommandType.AUTH_CHALLENGE, CommandType.ERROR])
def test_broker_may_answer_connect_with(command: CommandType) -> None:
    assert broker().judge(command) is Verdict.SERVE


def test_broker_that_answers_before_connected_is_left() -> None:
    state = broker()
    assert state.judge(CommandType.LOOKUP_RESPONSE) is Verdict.CLOSE
    assert state.close_cause(CommandType.LOOKUP_RESPONSE) == "command_before_connected"


def test_second_connected_closes() -> None:
    state = broker(State.READY)
    assert state.judge(CommandType.CONNECTED) is Verdict.CLOSE
    assert state.close_cause(CommandType.CONNECTED) == "second_connected"


@each("command", [CommandType.TOPIC_MIGRATED, CommandType.MESSAGE, UNKNOWN])
def test_what_a_broker_sends_unasked_is_dropped(command: int) -> None:
    assert broker(State.READY).judge(command) is Verdict.DROP


@each("role", Role)
@each("target", State)
def test_only_steps_of_the_table_are_taken(role: Role, target: State) -> None:
    state = ConnectionState(role)
    if target in TRANSITIONS[role][START[role]]:
        state.enter(target)
        assert state.state is target
    else:
        with pytest.raises(LocalProtocolError, match=re.escape(f"from {START[role]} to {target}")):
            state.enter(target)
        assert state.state is START[role]


@each("end", [State.CLOSING, State.CLOSED])
def test_end_may_be_found_twice(end: State) -> None:
    state = client(end, end)
    assert state.state is end


def test_closed_connection_never_comes_back() -> None:
    state = client(State.CLOSED)
    for target in set(State) - {State.CLOSED}:
        with pytest.raises(LocalProtocolError):
            state.enter(target)


@each("role", Role)
def test_every_state_is_reached_explained_and_has_a_default(role: Role) -> None:
    states = set(TRANSITIONS[role])
    reached = {START[role]} | {target for targets in TRANSITIONS[role].values() for target in targets}
    assert reached == states
    for table in (DEFAULT_VERDICTS, MEANING):
        assert {state for owner, state in table if owner is role} == states
    assert {state for owner, state in VERDICTS if owner is role} <= states


def test_every_state_but_closed_can_end() -> None:
    for table in TRANSITIONS.values():
        assert all(State.CLOSED in targets for state, targets in table.items() if state is not State.CLOSED)
