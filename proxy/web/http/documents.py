"""JSON documents that the proxy serves about itself, and the roles that may see them.

Rule: a document's handler is a plain function, which tests can call without a server. With `authenticationEnabled` a
request needs a role, with `authorizationEnabled` one of `superUserRoles`, as upstream's /proxy-stats do.
`proxy.web.pages` serves the documents.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from proxy.config.config import Config


@dataclass(frozen=True, slots=True)
class JsonRows:
    """The rows of a JSON array, which is made in slices: `each` must not depend on what changes meanwhile."""

    each: Iterator[Mapping[str, object]]


class Answer(NamedTuple):
    """The answer of a document: a status, and the contents of the JSON body."""

    status: int
    body: object


# The argument has the values of the path's `{names}`.
Handler = Callable[[Mapping[str, str]], Answer]


@dataclass(frozen=True, slots=True)
class Document:
    """A document: method and path, handler, description, and whether upstream's proxy has it too."""

    method: str
    path: str
    handler: Handler
    doc: str
    origin: Literal["pulsar", "ours"] = "pulsar"
    better: str = ""


def refusal(config: Config, role: str | None) -> Answer | None:
    """Return the refusal for a role that may not see documents, None if it may; the role is None if not proven."""
    if not config.authentication_enabled:
        return None
    if role is None:
        return Answer(401, {"reason": "authentication is required"})
    if config.authorization_enabled and role not in config.super_user_roles:
        return Answer(403, {"reason": "this role may not see it (superUserRoles)"})
    return None
