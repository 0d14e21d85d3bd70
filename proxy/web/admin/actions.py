"""What the admin API changes: it ends a connection, changes the log level, reloads, drains.

Rule: every change is in the log with who asked for it, before it is made, at a level that is hardly ever off. Nothing
else changes anything: the configuration's sources are the only way to change a limit.
"""

from collections.abc import Mapping
from typing import Any

from proxy.clients.connection import ClientConnection
from proxy.core.errors import DisconnectCause
from proxy.web.admin.connections import connection_row
from proxy.web.admin.paging import AdminDocument, Answer
from proxy.web.admin.sources import AdminSources, ProcessControl
from proxy.web.admin.views import number_of
from proxy.web.http.errors import HttpRefused

Asked = Mapping[str, Any]


class Changes:
    """Answer the routes of one proxy that change something; each method is named by its route."""

    def __init__(self, sources: AdminSources) -> None:
        self._sources = sources

    async def kill(self, asked: Asked, who: str) -> Answer:
        """End a connection at once; raises HttpRefused."""
        number, sources = number_of(asked), self._sources
        entry = sources.sessions.registry.find(number)
        if entry is None:
            raise HttpRefused(404, f"no connection {number}: it has ended, or never was", "no_connection")
        session = entry.member
        if isinstance(session, ClientConnection) and session.transport is None:
            raise HttpRefused(409, f"connection {number} is changing hands just now: ask again", "busy")
        row = connection_row(entry, sources.loop.time(), sources.names)
        self._note("kill", who, client=row["client"], principal=row["principal"], cause=str(DisconnectCause.ADMIN))
        session.abort(DisconnectCause.ADMIN)
        return AdminDocument(row)

    async def set_log_level(self, asked: Asked, who: str) -> Answer:
        """Change the log level; raises HttpRefused."""
        if "level" not in asked:
            raise HttpRefused(400, 'level: got nothing, expected {"level": ...}', "bad_request")
        settings, seconds = self._sources.settings, asked.get("seconds")
        self._note("log-level", who, old=settings.log_level()["level"], new=asked["level"], seconds=seconds)
        try:
            settings.change_log_level(str(asked["level"]), None if seconds is None else float(seconds))
        except ValueError as error:
            raise HttpRefused(400, str(error), "bad_request") from error
        return AdminDocument(settings.log_level())

    async def reload(self, _: Asked, who: str) -> Answer:
        """Reload, and report; 422 if the configuration has faults, 409 if the proxy is leaving."""
        process = self._process()
        self._note("reload", who)
        report = await process.reload()
        return AdminDocument(report.document(), {"applied": 200, "refused": 422}.get(report.result, 409))

    async def drain(self, asked: Asked, who: str) -> Answer:
        """Leave as at a signal; raises HttpRefused."""
        process = self._process()
        self._note("drain", who, reason="at once" if asked.get("at_once") else "")
        begun = process.drain(at_once=bool(asked.get("at_once")))
        if begun is None:
            raise HttpRefused(409, f"the proxy is leaving already: {self._sources.phase()}", "leaving")
        return AdminDocument(begun)

    def _process(self) -> ProcessControl:
        process = self._sources.process()
        if process is None:
            raise HttpRefused(503, "this proxy is not run by `serve`, which reloads and drains", "no_operator")
        return process

    def _note(self, action: str, who: str, **fields: object) -> None:
        known = {name: value for name, value in fields.items() if value not in (None, "")}
        self._sources.log.warning("admin change", action=action, who=who, **known)
