"""Documents of JSON that this proxy serves about itself, and who may see them.

Rule: a page is a plain function, so that it can be tested without a server. With `authenticationEnabled` a page needs a
role, with `authorizationEnabled` one of `superUserRoles`, as upstream's /proxy-stats do; `proxy.web.pages` serves them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol


class Answer(NamedTuple):
    """What a page answers: a status, and what its body says."""

    status: int
    body: object


# Gets the parts of the path that stand in braces.
Handler = Callable[[Mapping[str, str]], Answer]


@dataclass(frozen=True, slots=True)
class Document:
    """One document: where it is, who makes it, what it says, and whether upstream's proxy has it too."""

    method: str
    path: str
    handler: Handler
    doc: str
    origin: Literal["pulsar", "ours"] = "pulsar"
    better: str = ""


class GuardSettings(Protocol):
    """The part of the configuration that says who may see a page."""

    @property
    def authentication_enabled(self) -> bool:
        """Whether a page needs a role."""

    @property
    def authorization_enabled(self) -> bool:
        """Whether that role must be one of `super_user_roles`."""

    @property
    def super_user_roles(self) -> tuple[str, ...]:
        """Roles that may see everything."""


def refusal(settings: GuardSettings, role: str | None) -> Answer | None:
    """Say why a role (None: nobody was recognised) may not see a page, or None if it may."""
    if not settings.authentication_enabled:
        return None
    if role is None:
        return Answer(401, {"reason": "authentication is required"})
    if settings.authorization_enabled and role not in settings.super_user_roles:
        return Answer(403, {"reason": "this role may not see it (superUserRoles)"})
    return None
