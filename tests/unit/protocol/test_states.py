"""What each side of a connection may send when: rows of the table that docs/reference/states.md shows whole."""

import pytest

from protocol.command_type import CommandType
from protocol.errors import LocalProtocolError
from protocol.states import TRANSITIONS, ConnectionState, Role, State, Verdict
from tests.support.each import each

UNKNOWN = 9999
ALL = {*CommandType, UNKNOWN}
CONNECTING, LOOKUP = (State.CONNECTING,), (State.CONNECTING, State.LOOKUP)
CONNECTING_TO_BROKER = (State.CONNECTING, State.CONNECTING_TO_BROKER)
RELAY = (*CONNECTING_TO_BROKER, State.RELAY)
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


def connection(role: Role, *path: State) -> ConnectionState:
    state = ConnectionState(role)
    for step in path:
        state.enter(step)
    return state


@each(
    ("role", "path", "commands", "verdict"),
    [
        (Role.CLIENT, (), {CommandType.CONNECT}, Verdict.SERVE),
        (Role.CLIENT, LOOKUP, SERVED, Verdict.SERVE),
        (Role.CLIENT, LOOKUP, ALL - SERVED - {CommandType.CONNECT}, Verdict.REFUSE),
        (Role.CLIENT, RELAY, ALL, Verdict.SERVE),
        (Role.CLIENT, (*LOOKUP, State.CLOSING), ALL, Verdict.DROP),
        (Role.CLIENT, (*LOOKUP, State.CLOSED), ALL, Verdict.DROP),
        (Role.BROKER, (), {CommandType.CONNECTED, CommandType.AUTH_CHALLENGE, CommandType.ERROR}, Verdict.SERVE),
        (Role.BROKER, (State.READY,), {CommandType.TOPIC_MIGRATED, CommandType.MESSAGE, UNKNOWN}, Verdict.DROP),
        (Role.BROKER, (State.RELAY,), ALL, Verdict.SERVE),
    ],
)
def test_commands_are_served_refused_or_dropped(
    role: Role, path: tuple[State, ...], commands: set[int], verdict: Verdict
) -> None:
    state = connection(role, *path)
    assert {command: state.judge(command) for command in commands} == dict.fromkeys(commands, verdict)


@each(
    ("role", "path", "commands", "cause"),
    [
        (Role.CLIENT, (), ALL - {CommandType.CONNECT}, "command_before_connect"),
        (Role.CLIENT, CONNECTING, {CommandType.CONNECT}, "second_connect"),
        (Role.CLIENT, LOOKUP, {CommandType.CONNECT}, "second_connect"),
        (Role.CLIENT, CONNECTING, {CommandType.PRODUCER}, "command_before_connected"),
        (Role.CLIENT, CONNECTING_TO_BROKER, {CommandType.PRODUCER}, "command_before_connected"),
        (Role.BROKER, (), {CommandType.LOOKUP_RESPONSE}, "command_before_connected"),
        (Role.BROKER, (State.READY,), {CommandType.CONNECTED}, "second_connected"),
    ],
)
def test_commands_out_of_turn_close_the_connection(
    role: Role, path: tuple[State, ...], commands: set[int], cause: str
) -> None:
    state = connection(role, *path)
    for command in commands:
        assert (state.judge(command), state.close_cause(command)) == (Verdict.CLOSE, cause)


def test_closed_connection_never_comes_back() -> None:
    state = connection(Role.CLIENT, State.CLOSED, State.CLOSED)
    for target in set(State) - {State.CLOSED}:
        with pytest.raises(LocalProtocolError):
            state.enter(target)


def test_every_state_but_closed_can_end() -> None:
    for table in TRANSITIONS.values():
        assert all(State.CLOSED in targets for state, targets in table.items() if state is not State.CLOSED)
