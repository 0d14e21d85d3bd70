"""The actions of the admin API: close a connection, change a log level or a dynamic key, pause, profile, reload, drain.

Rule: every action is logged at warning level before it happens, with the client that asked for it. A reload ends every
change of a key: the configuration's sources decide.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from proxy.clients.connection import ClientConnection
from proxy.clients.sessions import Sessions
from proxy.config.config import ConfigError
from proxy.config.core import Core
from proxy.core.errors import DisconnectCause
from proxy.core.log import Logger
from proxy.net.listen.listening import ListeningSockets
from proxy.web.admin.connections import LONGEST_NAME, Names, connection_row
from proxy.web.admin.hand_over import described, send_sockets
from proxy.web.admin.paging import AdminDocument, Answer
from proxy.web.admin.process_control import NotUndone, ProcessControl
from proxy.web.admin.profile import Busy, Profiler
from proxy.web.admin.routes import Parameters
from proxy.web.admin.views import id_of
from proxy.web.http.errors import HttpRefused
from proxy.web.runtime_settings import RuntimeSettings

Action = Callable[[Parameters, str], Awaitable[Answer]]

# The phase in which a proxy has its sockets to itself (`proxy.app.lifecycle.Phase`).
SERVING: Final = "serving"


class ClientActions:
    """Closes connections, and turns new clients away; `names` shows principals as the log does."""

    def __init__(self, core: Core, sessions: Sessions, names: Names) -> None:
        self._clock, self._log = core.clock, core.log
        self._sessions = sessions
        self._names = names

    def by_route(self) -> dict[str, Action]:
        """Return the method that answers each route, by the route's name."""
        return {"kill": self.kill, "pause": self.pause, "resume": self.resume}

    async def kill(self, parameters: Parameters, who: str) -> Answer:
        """Close a connection at once and return its last row; raises HttpRefused."""
        number, sessions = id_of(parameters), self._sessions
        entry = sessions.registry.find(number)
        if entry is None:
            raise HttpRefused(404, f"no connection {number}: it has closed or never existed", "no_connection")
        session = entry.member
        if isinstance(session, ClientConnection) and session.transport is None:
            raise HttpRefused(409, f"connection {number} is just being accepted: try again", "busy")
        row = connection_row(entry, sessions, self._clock(), self._names)
        _tell(
            self._log, "kill", who, client=row["client"], principal=row["principal"], cause=str(DisconnectCause.ADMIN)
        )
        session.abort(DisconnectCause.ADMIN)
        return AdminDocument(row)

    async def pause(self, parameters: Parameters, who: str) -> Answer:
        """Turn new clients away until `resume`, or for some seconds."""
        seconds = parameters.get("seconds")
        _tell(self._log, "pause", who, seconds=seconds)
        self._sessions.accepting.pause(None if seconds is None else float(seconds))
        return self._accepting()

    async def resume(self, _: Parameters, who: str) -> Answer:
        """Take new clients again."""
        _tell(self._log, "resume", who)
        self._sessions.accepting.resume()
        return self._accepting()

    def _accepting(self) -> Answer:
        accepting, connections = self._sessions.accepting, len(self._sessions)
        left = accepting.seconds_left
        return AdminDocument({"accepting": not accepting.paused, "seconds_left": left, "connections": connections})


class ToolActions:
    """Changes log levels, and makes profiles."""

    def __init__(self, log: Logger, settings: RuntimeSettings) -> None:
        self._log = log
        self._settings = settings
        self._profiler = Profiler()

    def by_route(self) -> dict[str, Action]:
        """Return the method that answers each route, by the route's name."""
        return {"set_log_level": self.set_log_level, "profile": self.profile}

    async def set_log_level(self, parameters: Parameters, who: str) -> Answer:
        """Change a level of the log, for some seconds or until the next reload; raises HttpRefused."""
        if "level" not in parameters:
            raise HttpRefused(400, 'level: got nothing, expected {"level": ...}', "bad_request")
        settings, seconds, component = self._settings, parameters.get("seconds"), parameters.get("component")
        old, new = settings.level_of(component), str(parameters["level"])
        _tell(self._log, "log-level", who, old=old, new=new, seconds=seconds, component=component)
        try:
            settings.change_log_level(new, None if seconds is None else float(seconds), component)
        except ValueError as error:
            raise HttpRefused(400, str(error), "bad_request") from error
        return AdminDocument(settings.log_level())

    async def profile(self, parameters: Parameters, who: str) -> Answer:
        """Return a profile of the next seconds; raises HttpRefused."""
        if "seconds" not in parameters:
            raise HttpRefused(400, 'seconds: got nothing, expected {"seconds": ...}', "bad_request")
        _tell(self._log, "profile", who, seconds=parameters["seconds"])
        try:
            return AdminDocument(await self._profiler.profile(float(parameters["seconds"])))
        except Busy:
            raise HttpRefused(409, "another profile is being made: try again when it is over", "busy") from None


class ProcessActions:
    """Changes keys, reloads, drains and hands over by the process around the proxy.

    `process` returns None if the proxy is embedded in another program instead of run by `serve`.
    """

    def __init__(
        self,
        core: Core,
        process: Callable[[], ProcessControl | None],
        phase: Callable[[], str],
        sessions: Sessions,
        listening: ListeningSockets,
        budget_bytes: Callable[[], int],
    ) -> None:
        self._log = core.log
        self._of_process = process
        self._phase = phase
        self._sessions = sessions
        self._listening = listening
        self._budget_bytes = budget_bytes
        # The process that was given the sockets last.
        self._given_to = ""

    def by_route(self) -> dict[str, Action]:
        """Return the method that answers each route, by the route's name."""
        return {
            "set_key": self.set_key,
            "reload": self.reload,
            "drain": self.drain,
            "undrain": self.undrain,
            "hand_over": self.hand_over,
            "hand_over_done": self.hand_over_done,
        }

    async def set_key(self, parameters: Parameters, who: str) -> Answer:
        """Change a dynamic key until the next reload, or for some seconds; raises HttpRefused."""
        for name in ("key", "value"):
            if name not in parameters:
                raise HttpRefused(400, f"{name}: got nothing, expected a text", "bad_request")
        process, name, seconds = self._process(), str(parameters["key"]), parameters.get("seconds")
        # The value itself is in the line of the change: the text may be anything, and the key one that is secret.
        _tell(self._log, "set", who, key=name[:LONGEST_NAME], seconds=seconds)
        try:
            return AdminDocument(
                process.set(name, str(parameters["value"]), None if seconds is None else float(seconds))
            )
        except ConfigError as error:
            raise HttpRefused(400, "; ".join(map(str, error.problems)), "bad_request") from error

    async def reload(self, _: Parameters, who: str) -> Answer:
        """Reload the configuration; the status is 422 if it has faults, 409 if the proxy is stopping."""
        process = self._process()
        _tell(self._log, "reload", who)
        report = await process.reload()
        return AdminDocument(report.document(), {"applied": 200, "refused": 422}.get(report.result, 409))

    async def drain(self, parameters: Parameters, who: str) -> Answer:
        """Begin to stop, as on SIGTERM, or on SIGINT with `at_once`; raises HttpRefused."""
        process = self._process()
        _tell(self._log, "drain", who, reason="at once" if parameters.get("at_once") else "")
        begun = process.drain(bool(parameters.get("at_once")))
        if begun is None:
            raise HttpRefused(409, f"the proxy is stopping already: {self._phase()}", "leaving")
        return AdminDocument(begun)

    async def undrain(self, _: Parameters, who: str) -> Answer:
        """Call off a drain that the admin API began; raises HttpRefused."""
        process = self._process()
        _tell(self._log, "undrain", who)
        try:
            process.undo_drain()
        except NotUndone as error:
            raise HttpRefused(409, str(error), "leaving") from error
        return AdminDocument({"phase": str(self._phase()), "connections": len(self._sessions)})

    async def hand_over(self, parameters: Parameters, who: str) -> Answer:
        """Send the listening sockets to a process of the same user, and go on as before; raises HttpRefused."""
        self._process()
        if self._phase() != SERVING:
            raise HttpRefused(409, f"the proxy is stopping already: {self._phase()}", "leaving")
        handed = list(self._listening.opened())
        _tell(self._log, "hand-over", who)
        try:
            send_sockets(str(parameters.get("to", "")), handed)
        except ValueError as error:
            raise HttpRefused(400, f"to: {error}", "bad_request") from error
        except OSError as error:
            reason = f"nobody takes the sockets: {(error.strerror or str(error)).lower()}"
            raise HttpRefused(409, reason, "hand_over") from error
        self._given_to = str(parameters["to"])
        return AdminDocument(described(handed, self._budget_bytes()))

    async def hand_over_done(self, parameters: Parameters, who: str) -> Answer:
        """Leave newcomers to the process that has got the sockets, and drain; raises HttpRefused."""
        process, ready = self._process(), parameters.get("to", "")
        if not ready or ready != self._given_to:
            # Processes that both accept would each have limits of their own.
            raise HttpRefused(409, "another process has got the sockets since, or none has", "hand_over")
        _tell(self._log, "hand-over done", who)
        return AdminDocument(process.hand_over())

    def _process(self) -> ProcessControl:
        process = self._of_process()
        if process is None:
            raise HttpRefused(503, "this proxy is not run by `serve`, which reloads and drains", "no_operator")
        return process


def _tell(log: Logger, action: str, who: str, **fields: object) -> None:
    known = {name: value for name, value in fields.items() if value not in (None, "")}
    log.warning("admin change", action=action, who=who, **known)
