"""Own the shape of a script: what a client sends and waits for, and how the broker behind the proxy answers.

Commands may name places, such as `<broker>` in a URL; the player puts addresses there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from protocol.pb import PulsarApi_pb2 as pb
from tests.support.clients.commands import content_of
from tests.transcripts.tokens import PROXY, SECRET_KEY

BROKER, OTHER, NOBODY = "<broker>", "<other broker>", "<nobody>"


class Do(Enum):
    """What a client does besides sending."""

    READ = "read one frame, or find the connection ended"
    LEAVE = "close the connection"
    SEE_BROKER_LEFT = "wait until the proxy has ended all its connections to brokers"


class Broker(Enum):
    """What a broker does besides answering."""

    LEAVES = "close the connection"


Step = pb.BaseCommand | bytes | Do
Answer = pb.BaseCommand | Broker
Answers = Mapping[int, tuple[Answer, ...]]


@dataclass(frozen=True, slots=True)
class Script:
    """One connection of one client; the last of several answers to a command is given again and again."""

    name: str
    steps: tuple[Step, ...]
    answers: Answers = field(default_factory=dict)
    other_answers: Answers = field(default_factory=dict)
    settings: str = "plain"


_TOKEN: Final = {
    "authenticationEnabled": "true",
    "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
    "tokenSecretKey": SECRET_KEY,
    "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
    "brokerClientAuthenticationParameters": f"token:{PROXY}",
}
# What the proxy is started with; both proxies know these keys.
SETTINGS: Final[dict[str, dict[str, str]]] = {
    "plain": {},
    "nobody": {"brokerServiceURL": f"pulsar://{NOBODY}"},
    "hosts": {"brokerProxyAllowedHostNames": "broker-*.example"},
    "ports": {"brokerProxyAllowedTargetPorts": "6650,6651"},
    "addresses": {"brokerProxyAllowedIPAddresses": "10.0.0.0/8"},
    # Said, because the default of the Java proxy is another since Pulsar 5.0.
    "token": {**_TOKEN, "forwardAuthorizationCredentials": "false"},
    "token forwarded": {**_TOKEN, "forwardAuthorizationCredentials": "true"},
    "token or anonymous": {**_TOKEN, "forwardAuthorizationCredentials": "false", "anonymousUserRole": "anonymous"},
}


def placed(built: pb.BaseCommand, places: Mapping[str, str]) -> pb.BaseCommand:
    """Give the command with addresses for its places."""
    copy = pb.BaseCommand()
    copy.CopyFrom(built)
    content = getattr(copy, content_of(copy.type))
    for descriptor, value in content.ListFields():
        if isinstance(value, str):
            setattr(content, descriptor.name, placed_text(value, places))
    return copy


def placed_text(text: str, places: Mapping[str, str]) -> str:
    """Give the text with addresses for its places."""
    for place, address in places.items():
        text = text.replace(place, address)
    return text
