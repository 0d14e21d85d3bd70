"""Ask with the credentials of a member, where clients of one role share a list (`topicListSharedBy=role`).

The first member lends its credentials, while it is there. Members whose credentials the broker refuses are told so, and
the question is asked again with those of the next: nobody's list fails for another's token.
"""

from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import TypeVar

from protocol.errors import ServerError
from proxy.core.errors import RequestFailed
from proxy.core.loop_budget import LoopBudget
from proxy.requests.topic_lists.groups import GroupFailure, GroupMember, ListGroup
from proxy.telemetry.refusals import Stage

T = TypeVar("T")


async def ask_as_a_member(group: ListGroup, ask: Callable[[], Awaitable[T]], loop_budget: LoopBudget) -> T:
    """Return what `ask` returns, with the credentials of a member that the broker does not refuse; raise its errors."""
    # The first member may have left while this waited.
    group.principal = group.first_member.client.principal
    told: set[GroupMember] = set()
    refused: dict[Hashable, GroupFailure] = {}
    while True:
        try:
            return await ask()
        except RequestFailed as error:
            if not _of_credentials(error, group.step.stage):
                raise
            refused[group.principal] = GroupFailure(error, group.step.stage)
            # Clients that have left, and their tokens, are nobody's any more, and others join for as long as this goes.
            present = {member.client.principal for member in group.members}
            refused = {principal: failure for principal, failure in refused.items() if principal in present}
            told.intersection_update(group.members)
            for member in group.members:
                failure = refused.get(member.client.principal)
                if failure is None:
                    group.principal = member.client.principal
                    break
                if member not in told:
                    told.add(member)
                    loop_budget.defer_settling(group, partial(member.settle, failure))
            else:
                raise


def _of_credentials(error: RequestFailed, stage: Stage) -> bool:
    """Return whether other credentials of the role may do: its rights are the same with each, once it is believed."""
    at_connect = error.code == ServerError.AuthorizationError and stage is Stage.BROKER_CONNECTION
    return at_connect or error.code == ServerError.AuthenticationError
