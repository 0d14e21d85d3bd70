"""What the admin API changes: it ends a connection, changes the log level, reloads, drains.

Rule: every change is in the log with who asked for it, before it is made, at a level that is hardly ever off. Nothing
else changes anything: the configuration's sources are the only way to change a limit.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from proxy.clients.connection import ClientConnection
from proxy.core.errors import DisconnectCause
from proxy.web.admin.connections import connection_row
from proxy.web.admin.paging import AdminDocument, Answer
from proxy.web.admin.reload_report import ReloadReport
from proxy.web.admin.views import number_of
from proxy.web.http.errors import HttpRefused

if TYPE_CHECKING:
    from proxy.app.proxy import Proxy

Asked = Mapping[str, Any]


class ProcessControl(Protocol):
    """The process around a proxy, which takes signals (`proxy.cli.serve`)."""

    async def reload(self) -> ReloadReport:
        """Read the configuration again, and say what became of it."""

    def drain(self, *, at_once: bool) -> Mapping[str, object] | None:
        """Begin to leave, and say how long that may take; None if it is leaving already."""


class Changes:
    """Answer the routes of one proxy that change something; each method is named by its route."""

    def __init__(self, proxy: "Proxy") -> None:
        self._proxy = proxy

    async def kill(self, asked: Asked, who: str) -> Answer:
        """End a connection at once; raises HttpRefused."""
        number, proxy = number_of(asked), self._proxy
        entry = proxy.sessions.registry.find(number)
        if entry is None:
            raise HttpRefused(404, f"no connection {number}: it has ended, or never was", "no_connection")
        session = entry.member
        if isinstance(session, ClientConnection) and session.transport is None:
            raise HttpRefused(409, f"connection {number} is changing hands just now: ask again", "busy")
        row = connection_row(entry, proxy.loop.time(), proxy.identities.names)
        self._note("kill", who, client=row["client"], principal=row["principal"], cause=str(DisconnectCause.ADMIN))
        session.abort(DisconnectCause.ADMIN)
        return AdminDocument(row)

    async def set_log_level(self, asked: Asked, who: str) -> Answer:
        """Change the log level; raises HttpRefused."""
        if "level" not in asked:
            raise HttpRefused(400, 'level: got nothing, expected {"level": ...}', "bad_request")
        live, seconds = self._proxy.live, asked.get("seconds")
        self._note("log-level", who, old=live.log_level()["level"], new=asked["level"], seconds=seconds)
        try:
            live.change_log_level(str(asked["level"]), None if seconds is None else float(seconds))
        except ValueError as error:
            raise HttpRefused(400, str(error), "bad_request") from error
        return AdminDocument(live.log_level())

    async def reload(self, _: Asked, who: str) -> Answer:
        """Reload, and report; 422 if the configuration has faults, 409 if the proxy is leaving."""
        operator = self._operator()
        self._note("reload", who)
        report = await operator.reload()
        return AdminDocument(report.document(), {"applied": 200, "refused": 422}.get(report.result, 409))

    async def drain(self, asked: Asked, who: str) -> Answer:
        """Leave as at a signal; raises HttpRefused."""
        operator = self._operator()
        self._note("drain", who, reason="at once" if asked.get("at_once") else "")
        begun = operator.drain(at_once=bool(asked.get("at_once")))
        if begun is None:
            raise HttpRefused(409, f"the proxy is leaving already: {self._proxy.phase}", "leaving")
        return AdminDocument(begun)

    def _operator(self) -> ProcessControl:
        if self._proxy.operator is None:
            raise HttpRefused(503, "this proxy is not run by `serve`, which reloads and drains", "no_operator")
        return self._proxy.operator

    def _note(self, action: str, who: str, **fields: object) -> None:
        known = {name: value for name, value in fields.items() if value not in (None, "")}
        self._proxy.log.warning("admin change", action=action, who=who, **known)
