"""Is an answer the right one? Every answer of a load test passes here.

Sans-IO; knows the protocol and what a topic list may hold, not who asked.
"""

from collections.abc import Sequence
from typing import NamedTuple

from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from tests.load.books import Outcome


class Judgement(NamedTuple):
    """An outcome and, unless the request was answered, why."""

    outcome: Outcome
    detail: str = ""


_RIGHT = Judgement(Outcome.ANSWERED)


def judge_topics(answer: pb.BaseCommand, namespace: str, topics: int) -> Judgement:
    """Judge the answer to GET_TOPICS_OF_NAMESPACE; `topics` names are expected, 0: any number."""
    if answer.type != CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE:
        return _not_served(answer)
    names = answer.getTopicsOfNamespaceResponse.topics
    detail = _wrong_names(names, namespace, topics)
    return Judgement(Outcome.WRONG, detail) if detail else _RIGHT


def _wrong_names(names: Sequence[str], namespace: str, topics: int) -> str:
    if topics and len(names) != topics:
        return f"got {len(names)} topics, expected {topics}"
    prefixes = (f"persistent://{namespace}/", f"non-persistent://{namespace}/")
    foreign = next((name for name in names if not name.startswith(prefixes)), None)
    if foreign is not None:
        return f"got topic {foreign[:100]!r}, expected one of {namespace}"
    twice = len(names) - len(set(names))
    return f"got {twice} topics twice" if twice else ""


def judge_lookup(answer: pb.BaseCommand) -> Judgement:
    """Judge the answer to LOOKUP: it must name a broker."""
    if answer.type != CommandType.LOOKUP_RESPONSE:
        return _not_served(answer)
    response = answer.lookupTopicResponse
    if response.response == pb.CommandLookupTopicResponse.Failed:
        return _error(response.error, response.message)
    return _RIGHT if response.brokerServiceUrl else Judgement(Outcome.WRONG, "got a lookup answer without a broker")


def judge_connected(answer: pb.BaseCommand) -> Judgement:
    """Judge the answer to CONNECT."""
    return _RIGHT if answer.type == CommandType.CONNECTED else _not_served(answer)


def judge_pong(answer: pb.BaseCommand) -> Judgement:
    """Judge the answer to PING."""
    return _RIGHT if answer.type == CommandType.PONG else _not_served(answer)


def _not_served(answer: pb.BaseCommand) -> Judgement:
    if answer.type == CommandType.ERROR:
        return _error(answer.error.error, answer.error.message)
    return Judgement(Outcome.WRONG, f"got {pb.BaseCommand.Type.Name(answer.type)}, expected another answer")


def _error(code: int, message: str) -> Judgement:
    if code == ServerError.TooManyRequests:
        return Judgement(Outcome.REFUSED, message)
    return Judgement(Outcome.FAILED, f"{ServerError(code).name}: {message}")
