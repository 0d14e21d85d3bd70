"""CONNECT with a target: which targets are taken, what the broker is told, and how the two are joined."""

from typing import Final

from protocol.commands import REQUEST_ID_NONE
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.clients.commands import command
from tests.transcripts.script import BROKER, NOBODY, OTHER, Answers, Broker, Do, Script, Step
from tests.transcripts.scripts.connect import PING, READ, connect

_CONNECT: Final = pb.BaseCommand.CONNECT
_TO: Final = connect(proxy_to_broker_url=BROKER)
_PONG: Final = command("PONG")
_PRODUCER: Final = command("PRODUCER", topic="persistent://t/n/topic", producer_id=3, request_id=7)
_ECHO: Final[Answers] = {
    pb.BaseCommand.PING: (_PONG,),
    pb.BaseCommand.PRODUCER: (command("PRODUCER_SUCCESS", request_id=7, producer_name="p"),),
}


def _greets(**fields: object) -> Answers:
    return {**_ECHO, _CONNECT: (command("CONNECTED", server_version="fake broker", **fields),)}


def _script(name: str, *steps: Step, answers: Answers = _ECHO, settings: str = "plain") -> Script:
    return Script(f"direct: {name}", steps, answers, _ECHO, settings)


def _asks(name: str, url: str, settings: str = "plain") -> Script:
    # Whoever is joined to a broker gets its PONG.
    return _script(name, connect(proxy_to_broker_url=url), READ, PING, READ, settings=settings)


def _refuses(name: str, code: int) -> Script:
    answer = command("ERROR", request_id=REQUEST_ID_NONE, error=code, message="not you")
    return _script(f"the broker refuses with {name}", _TO, READ, READ, answers={_CONNECT: (answer,)})


_ALL_FEATURES: Final = pb.FeatureFlags(
    supports_auth_refresh=True,
    supports_broker_entry_metadata=True,
    supports_partial_producer=True,
    supports_topic_watchers=True,
    supports_get_partitioned_metadata_without_auto_creation=True,
    supports_repl_dedup_by_lid_and_eid=True,
)
_CHALLENGE: Final = command(
    "AUTH_CHALLENGE",
    server_version="fake broker",
    protocol_version=21,
    challenge=pb.AuthData(auth_method_name="token", auth_data=b"PulsarAuthRefresh"),
)

DIRECT: Final = (
    _script("a broker without features", _TO, READ, PING, READ, answers=_greets(protocol_version=21)),
    _script(
        "a broker with all features",
        _TO,
        READ,
        answers=_greets(protocol_version=21, max_message_size=1024 * 1024, feature_flags=_ALL_FEATURES),
    ),
    _script("an old broker", _TO, READ, answers=_greets(protocol_version=15, max_message_size=1024 * 1024)),
    _script("a newer broker", _TO, READ, answers=_greets(protocol_version=30)),
    _script("an old client", connect(proxy_to_broker_url=BROKER, protocol_version=13), READ, PING, READ),
    _script("a newer client", connect(proxy_to_broker_url=BROKER, protocol_version=30), READ, PING, READ),
    _script("features of the client", connect(proxy_to_broker_url=BROKER, feature_flags=_ALL_FEATURES), READ),
    _script(
        "a token though nobody asks",
        connect(proxy_to_broker_url=BROKER, auth_method_name="token", auth_data=b"anything"),
        READ,
    ),
    _script(
        "original fields of the client",
        connect(
            proxy_to_broker_url=BROKER, original_principal="eve", original_auth_data="x", original_auth_method="token"
        ),
        READ,
    ),
    _script("v9", connect(proxy_to_broker_url=BROKER, protocol_version=9), READ),
    _script("a proxy_version", connect(proxy_to_broker_url=BROKER, proxy_version="5.0.0"), READ, READ),
    _script("requests are relayed", _TO, READ, _PRODUCER, READ, PING, READ),
    _script("a second connect is relayed", _TO, READ, connect(client_version="again"), READ),
    _script("the client leaves", _TO, READ, PING, READ, Do.LEAVE, Do.SEE_BROKER_LEFT),
    _script("the broker leaves", _TO, READ, PING, READ, answers={pb.BaseCommand.PING: (Broker.LEAVES,)}),
    _script("the broker leaves before it answers", _TO, READ, answers={_CONNECT: (Broker.LEAVES,)}),
    _refuses("AuthenticationError", pb.AuthenticationError),
    _refuses("AuthorizationError", pb.AuthorizationError),
    _refuses("ServiceNotReady", pb.ServiceNotReady),
    _refuses("NotAllowedError", pb.NotAllowedError),
    _refuses("UnsupportedVersionError", pb.UnsupportedVersionError),
    _script("the broker asks for credentials", _TO, READ, answers={_CONNECT: (_CHALLENGE,)}),
    _script(
        "the broker answers with another command", _TO, READ, answers={_CONNECT: (command("SUCCESS", request_id=1),)}
    ),
    _asks("another broker", OTHER),
    _asks("nobody listens there", NOBODY),
    _asks("with the scheme", f"pulsar://{BROKER}"),
    _asks("with the scheme of TLS", f"pulsar+ssl://{BROKER}"),
    _asks("with a slash behind", f"{BROKER}/"),
    _asks("without a port", "127.0.0.1"),
    _asks("a port that is no number", "127.0.0.1:pulsar"),
    _asks("port 0", "127.0.0.1:0"),
    _asks("port 65536", "127.0.0.1:65536"),
    _asks("an empty host", ":6650"),
    _asks("an empty target", ""),
    _asks("a host with a space", "broker one:6650"),
    _asks("a host that nobody knows", "no-such-host.invalid:6650"),
    _asks("two addresses", f"{BROKER},{OTHER}"),
    _asks("IPv6 in brackets, nobody there", "[::1]:1"),
    _asks("a host that is not allowed", BROKER, "hosts"),
    _asks("a port that is not allowed", BROKER, "ports"),
    _asks("an address that is not allowed", BROKER, "addresses"),
)
