"""The script of an embedded broker: the faults it simulates, read at each command, so that a test can change them.

Rule: a delay is a gate that the test opens, never a time.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from protocol.command_type import CommandType
from protocol.errors import ServerError


class AfterHandshake(Enum):
    """The traffic of a connection after CONNECTED."""

    COMMANDS = "requests and answers"
    ECHO = "every byte goes back"
    FLOOD = "message frames as fast as the socket takes them; what arrives is discarded"


class Redirect(NamedTuple):
    """A redirect as the answer to a lookup, instead of this broker's own address."""

    url: str
    authoritative: bool = True
    proxy_through_service_url: bool = False


class Failure(NamedTuple):
    """An error as the answer to all requests of a type."""

    code: int = ServerError.UnknownError
    message: str = "the script says so"


@dataclass(slots=True)
class Script:
    """The faults of a broker; an empty script has none.

    `silent` types are read and never answered. `gates` hold the answers of a type until their event is set. The
    answer of a type in `cut_mid_frame` ends with a FIN after that many bytes. `unknown_request_id` types are answered
    with an unknown request id. Each lookup uses up a redirect of `redirects`. `refuse_connect` answers CONNECT
    with ERROR and closes.
    """

    silent: set[CommandType] = field(default_factory=set)
    gates: dict[CommandType, asyncio.Event] = field(default_factory=dict)
    cut_mid_frame: dict[CommandType, int] = field(default_factory=dict)
    unknown_request_id: set[CommandType] = field(default_factory=set)
    failures: dict[CommandType, Failure] = field(default_factory=dict)
    redirects: deque[Redirect] = field(default_factory=deque)
    refuse_connect: Failure | None = None
    after_handshake: AfterHandshake = AfterHandshake.COMMANDS
    flood_payload_bytes: int = 64 * 1024

    def hold(self, command_type: CommandType) -> asyncio.Event:
        """Hold the answers of a type from now on, and return the event that releases them."""
        return self.gates.setdefault(command_type, asyncio.Event())
