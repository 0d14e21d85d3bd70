"""Documents of JSON that this proxy serves about itself, and who may see them.

Rule: a page is a plain function, so that it can be tested without a server; `add_documents` alone knows aiohttp. With
`authenticationEnabled` a page needs a role, with `authorizationEnabled` one of `superUserRoles`, as upstream's
/proxy-stats do; who asks is found out by the callable that the web port's authentication supplies.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import orjson

if TYPE_CHECKING:
    from aiohttp import web


class Answer(NamedTuple):
    """What a page answers: a status, and what its body says."""

    status: int
    body: object


# Gets the parts of the path that stand in braces.
Handler = Callable[[Mapping[str, str]], Answer]
RoleOf = Callable[["web.Request"], Awaitable[str | None]]


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


async def nobody(_: "web.Request") -> str | None:
    """Recognise nobody."""
    return None


def add_documents(
    app: "web.Application", documents: Sequence[Document], settings: GuardSettings, role_of: RoleOf
) -> None:
    """Put documents into a server."""
    from aiohttp import web

    def served(handler: Handler) -> "Callable[[web.Request], Awaitable[web.StreamResponse]]":
        async def answer(request: web.Request) -> web.StreamResponse:
            role = await role_of(request) if settings.authentication_enabled else None
            status, body = refusal(settings, role) or handler(request.match_info)
            headers = {"Cache-Control": "no-store"} | ({"WWW-Authenticate": "Bearer"} if status == 401 else {})
            if status == 204:
                return web.Response(status=status, headers=headers)
            return web.Response(
                body=orjson.dumps(body), status=status, headers=headers, content_type="application/json"
            )

        return answer

    for page in documents:
        app.router.add_route(page.method, page.path, served(page.handler))
