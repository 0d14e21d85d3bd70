"""The states of a connection, and a verdict on every command in each state.

The role CLIENT is this proxy's side towards a client, BROKER its side towards a broker. The rules are the tables
below, applied by `ConnectionState`; docs/reference/states.md is generated from the same tables. A verdict needs only
the command's number, so it can come before the command is decoded, or even complete. The caller of `judge` carries the
verdict out.
"""

from enum import Enum, StrEnum
from typing import Final

from protocol.command_type import CommandType
from protocol.errors import LocalProtocolError


class Role(StrEnum):
    """The peer that a connection leads to."""

    CLIENT = "client"
    BROKER = "broker"


class State(StrEnum):
    """The states of both roles; TRANSITIONS lists the states of each role."""

    INIT = "init"
    CONNECTING = "connecting"
    LOOKUP = "lookup"
    CONNECTING_TO_BROKER = "connecting_to_broker"
    READY = "ready"
    RELAY = "relay"
    CLOSING = "closing"
    CLOSED = "closed"


class Verdict(Enum):
    """The treatment of a command."""

    SERVE = "handle it (in RELAY: pass the bytes on)"
    REFUSE = "answer ERROR with its request id, or -1 if it has none or its number is unknown; the connection lives"
    CLOSE = "close the connection with the cause that close_cause() names"
    DROP = "ignore it: nothing waits for an answer"


SERVE, REFUSE, CLOSE, DROP = Verdict.SERVE, Verdict.REFUSE, Verdict.CLOSE, Verdict.DROP

START: Final[dict[Role, State]] = {Role.CLIENT: State.INIT, Role.BROKER: State.CONNECTING}

TRANSITIONS: Final[dict[Role, dict[State, tuple[State, ...]]]] = {
    Role.CLIENT: {
        State.INIT: (State.CONNECTING, State.CLOSING, State.CLOSED),
        State.CONNECTING: (State.LOOKUP, State.CONNECTING_TO_BROKER, State.CLOSING, State.CLOSED),
        State.LOOKUP: (State.CLOSING, State.CLOSED),
        State.CONNECTING_TO_BROKER: (State.RELAY, State.CLOSING, State.CLOSED),
        State.RELAY: (State.CLOSING, State.CLOSED),
        State.CLOSING: (State.CLOSED,),
        State.CLOSED: (),
    },
    Role.BROKER: {
        State.CONNECTING: (State.READY, State.RELAY, State.CLOSED),
        State.READY: (State.CLOSED,),
        State.RELAY: (State.CLOSED,),
        State.CLOSED: (),
    },
}

MEANING: Final[dict[tuple[Role, State], str]] = {
    (Role.CLIENT, State.INIT): "Accepted; CONNECT has not come.",
    (Role.CLIENT, State.CONNECTING): "CONNECT is being checked, or an answer to AUTH_CHALLENGE is awaited.",
    (Role.CLIENT, State.LOOKUP): "CONNECTED was sent; lookups, topic lists and schemas are served.",
    (Role.CLIENT, State.CONNECTING_TO_BROKER): "CONNECT asked for a broker, whose CONNECTED has not come.",
    (Role.CLIENT, State.RELAY): "Bytes pass both ways, nothing is decoded.",
    (Role.CLIENT, State.CLOSING): "The last answer is being written, then the socket closes.",
    (Role.CLIENT, State.CLOSED): "The socket is closed.",
    (Role.BROKER, State.CONNECTING): "CONNECT was sent; CONNECTED has not come.",
    (Role.BROKER, State.READY): "Requests go out, answers come in.",
    (Role.BROKER, State.RELAY): "Bytes pass both ways, nothing is decoded.",
    (Role.BROKER, State.CLOSED): "The socket is closed.",
}

DEFAULT_VERDICTS: Final[dict[tuple[Role, State], Verdict]] = {
    (Role.CLIENT, State.INIT): CLOSE,
    (Role.CLIENT, State.CONNECTING): CLOSE,
    # The Java proxy closes without an error; an ERROR keeps the connection and names what is not served.
    (Role.CLIENT, State.LOOKUP): REFUSE,
    # The Java proxy drops these commands, and the client waits for an answer until it times out.
    (Role.CLIENT, State.CONNECTING_TO_BROKER): CLOSE,
    (Role.CLIENT, State.RELAY): SERVE,
    (Role.CLIENT, State.CLOSING): DROP,
    (Role.CLIENT, State.CLOSED): DROP,
    (Role.BROKER, State.CONNECTING): CLOSE,
    # A newer broker may send commands that the proxy did not ask for.
    (Role.BROKER, State.READY): DROP,
    (Role.BROKER, State.RELAY): SERVE,
    (Role.BROKER, State.CLOSED): DROP,
}

VERDICTS: Final[dict[tuple[Role, State], dict[CommandType, Verdict]]] = {
    (Role.CLIENT, State.INIT): {CommandType.CONNECT: SERVE},
    (Role.CLIENT, State.CONNECTING): {
        CommandType.AUTH_RESPONSE: SERVE,
        CommandType.PING: SERVE,
        CommandType.PONG: SERVE,
        CommandType.CONNECT: CLOSE,
    },
    (Role.CLIENT, State.LOOKUP): {
        CommandType.LOOKUP: SERVE,
        CommandType.PARTITIONED_METADATA: SERVE,
        CommandType.GET_TOPICS_OF_NAMESPACE: SERVE,
        CommandType.GET_SCHEMA: SERVE,
        CommandType.GET_OR_CREATE_SCHEMA: SERVE,
        CommandType.AUTH_RESPONSE: SERVE,
        CommandType.PING: SERVE,
        CommandType.PONG: SERVE,
        CommandType.CONNECT: CLOSE,
    },
    (Role.CLIENT, State.CONNECTING_TO_BROKER): {
        CommandType.PING: SERVE,
        CommandType.PONG: SERVE,
        CommandType.CONNECT: CLOSE,
    },
    (Role.BROKER, State.CONNECTING): {
        CommandType.CONNECTED: SERVE,
        CommandType.AUTH_CHALLENGE: SERVE,
        CommandType.ERROR: SERVE,
        CommandType.PING: SERVE,
        CommandType.PONG: SERVE,
    },
    (Role.BROKER, State.READY): {
        CommandType.LOOKUP_RESPONSE: SERVE,
        CommandType.PARTITIONED_METADATA_RESPONSE: SERVE,
        CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE: SERVE,
        CommandType.GET_SCHEMA_RESPONSE: SERVE,
        CommandType.GET_OR_CREATE_SCHEMA_RESPONSE: SERVE,
        CommandType.ERROR: SERVE,
        CommandType.AUTH_CHALLENGE: SERVE,
        CommandType.PING: SERVE,
        CommandType.PONG: SERVE,
        CommandType.CONNECTED: CLOSE,
    },
}

BEFORE_CONNECT: Final = "command_before_connect"
BEFORE_CONNECTED: Final = "command_before_connected"
SECOND_CONNECT: Final = "second_connect"
SECOND_CONNECTED: Final = "second_connected"


def close_cause(state: State, command_type: int) -> str:
    """Return the cause of a CLOSE verdict, as metrics and logs carry it."""
    if state is State.INIT:
        return BEFORE_CONNECT
    if command_type == CommandType.CONNECT:
        return SECOND_CONNECT
    if state is State.READY:
        return SECOND_CONNECTED
    return BEFORE_CONNECTED


class ConnectionState:
    """The state of one connection, and the verdict on what its peer sends."""

    __slots__ = ("_default", "_verdicts", "role", "state")

    def __init__(self, role: Role) -> None:
        self.role = role
        self._settle(START[role])

    def judge(self, command_type: int) -> Verdict:
        """Return the verdict on a command that arrives now; an unknown number gets the state's default."""
        return self._verdicts.get(command_type, self._default)

    def close_cause(self, command_type: int) -> str:
        """Return the cause to close with after `judge` returned CLOSE."""
        return close_cause(self.state, command_type)

    def enter(self, state: State) -> None:
        """Enter another state; raises LocalProtocolError if the table has no such step.

        CLOSING and CLOSED may be entered again: several parties can find out that a connection ends.
        """
        if state in TRANSITIONS[self.role][self.state]:
            self._settle(state)
        elif state is not self.state or state not in (State.CLOSING, State.CLOSED):
            raise LocalProtocolError(f"a {self.role} connection cannot go from {self.state} to {state}")

    def _settle(self, state: State) -> None:
        self.state = state
        self._default = DEFAULT_VERDICTS[self.role, state]
        self._verdicts: dict[int, Verdict] = _VERDICTS_BY_NUMBER[self.role, state]

    def __repr__(self) -> str:
        return f"<{self.role} connection: {self.state}>"


_VERDICTS_BY_NUMBER: Final[dict[tuple[Role, State], dict[int, Verdict]]] = {
    key: {int(kind): verdict for kind, verdict in VERDICTS.get(key, {}).items()} for key in DEFAULT_VERDICTS
}
