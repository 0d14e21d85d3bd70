"""Ask with the credentials of a member, where clients of one role share a list (`topicListSharedBy=role`).

The first member lends its credentials, while it is there. A member whose credentials the broker refuses is told so, and
the question is asked again with those of the next: nobody's list fails for another's token.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from protocol.errors import ServerError
from proxy.core.errors import RequestFailed
from proxy.requests.topic_lists.groups import GroupFailure, GroupMember, ListGroup
from proxy.telemetry.refusals import Stage

T = TypeVar("T")


async def ask_as_a_member(group: ListGroup, ask: Callable[[], Awaitable[T]]) -> T:
    """Return what `ask` returns, with the credentials of a member that the broker does not refuse; raise its errors."""
    while True:
        lender = next(_lenders(group), None)
        if lender is not None:
            group.principal = lender.client.principal
        try:
            return await ask()
        except RequestFailed as error:
            if lender is None or not _of_credentials(error, group.stopped_at()):
                raise
            lender.settle(GroupFailure(error, group.stopped_at()))
            if next(_lenders(group), None) is None:
                raise


def _lenders(group: ListGroup) -> Iterator[GroupMember]:
    return (member for member in group.members if not member.outcome.done())


def _of_credentials(error: RequestFailed, stage: Stage) -> bool:
    """Return whether other credentials of the role may do: its rights are the same with each, once it is believed."""
    at_connect = error.code == ServerError.AuthorizationError and stage is Stage.BROKER_CONNECTION
    return at_connect or error.code == ServerError.AuthenticationError
