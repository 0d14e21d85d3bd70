"""The actions of the admin API: close a connection, change the log level or a dynamic key, reload, drain.

Rule: every action is logged at warning level before it happens, with the client that asked for it. A reload ends every
change of a key: the configuration's sources decide.
"""

from proxy.clients.connection import ClientConnection
from proxy.config.config import ConfigError
from proxy.core.errors import DisconnectCause
from proxy.web.admin.connections import LONGEST_NAME, connection_row
from proxy.web.admin.paging import AdminDocument, Answer
from proxy.web.admin.routes import Parameters
from proxy.web.admin.sources import AdminSources, ProcessControl
from proxy.web.admin.views import id_of
from proxy.web.http.errors import HttpRefused


class Actions:
    """Answers the routes that change something; each method has the name of its route."""

    def __init__(self, sources: AdminSources) -> None:
        self._sources = sources

    async def kill(self, parameters: Parameters, who: str) -> Answer:
        """Close a connection at once and return its last row; raises HttpRefused."""
        number, sources = id_of(parameters), self._sources
        entry = sources.sessions.registry.find(number)
        if entry is None:
            raise HttpRefused(404, f"no connection {number}: it has closed or never existed", "no_connection")
        session = entry.member
        if isinstance(session, ClientConnection) and session.transport is None:
            raise HttpRefused(409, f"connection {number} is just being accepted: try again", "busy")
        row = connection_row(entry, sources.sessions, sources.loop.time(), sources.names)
        self._log("kill", who, client=row["client"], principal=row["principal"], cause=str(DisconnectCause.ADMIN))
        session.abort(DisconnectCause.ADMIN)
        return AdminDocument(row)

    async def set_log_level(self, parameters: Parameters, who: str) -> Answer:
        """Change the log level until the next reload, or for some seconds; raises HttpRefused."""
        if "level" not in parameters:
            raise HttpRefused(400, 'level: got nothing, expected {"level": ...}', "bad_request")
        settings, seconds = self._sources.settings, parameters.get("seconds")
        self._log("log-level", who, old=settings.log_level()["level"], new=parameters["level"], seconds=seconds)
        try:
            settings.change_log_level(str(parameters["level"]), None if seconds is None else float(seconds))
        except ValueError as error:
            raise HttpRefused(400, str(error), "bad_request") from error
        return AdminDocument(settings.log_level())

    async def set_key(self, parameters: Parameters, who: str) -> Answer:
        """Change a dynamic key until the next reload, or for some seconds; raises HttpRefused."""
        for name in ("key", "value"):
            if name not in parameters:
                raise HttpRefused(400, f"{name}: got nothing, expected a text", "bad_request")
        process, name, seconds = self._process(), str(parameters["key"]), parameters.get("seconds")
        # The value itself is in the line of the change: the text may be anything, and the key one that is secret.
        self._log("set", who, key=name[:LONGEST_NAME], seconds=seconds)
        try:
            return AdminDocument(
                process.set(name, str(parameters["value"]), None if seconds is None else float(seconds))
            )
        except ConfigError as error:
            raise HttpRefused(400, "; ".join(map(str, error.problems)), "bad_request") from error

    async def reload(self, _: Parameters, who: str) -> Answer:
        """Reload the configuration; the status is 422 if it has faults, 409 if the proxy is stopping."""
        process = self._process()
        self._log("reload", who)
        report = await process.reload()
        return AdminDocument(report.document(), {"applied": 200, "refused": 422}.get(report.result, 409))

    async def drain(self, parameters: Parameters, who: str) -> Answer:
        """Begin to stop, as on SIGTERM, or on SIGINT with `at_once`; raises HttpRefused."""
        process = self._process()
        self._log("drain", who, reason="at once" if parameters.get("at_once") else "")
        begun = process.drain(at_once=bool(parameters.get("at_once")))
        if begun is None:
            raise HttpRefused(409, f"the proxy is stopping already: {self._sources.phase()}", "leaving")
        return AdminDocument(begun)

    def _process(self) -> ProcessControl:
        process = self._sources.process()
        if process is None:
            raise HttpRefused(503, "this proxy is not run by `serve`, which reloads and drains", "no_operator")
        return process

    def _log(self, action: str, who: str, **fields: object) -> None:
        known = {name: value for name, value in fields.items() if value not in (None, "")}
        self._sources.log.warning("admin change", action=action, who=who, **known)
