"""Whether this proxy should get new clients, as probes and orchestrators see it.

Rule: brokers that are down do not make a proxy not ready. All proxies see the same brokers, so an outage of the brokers
would take every proxy away from its clients, and nobody would tell these what is wrong.
"""

from collections.abc import Callable

from proxy.brokers.discovery import Brokers
from proxy.clients.accepting import Accepting
from proxy.relay.engines import RelayEngines


class Readiness:
    """Told by the server and read by probes: whether this proxy should get new clients."""

    __slots__ = ("_accepting", "_brokers", "_clock", "_draining", "_engines", "_listening", "_waits_until")

    def __init__(self, clock: Callable[[], float], accepting: Accepting, engines: RelayEngines | None = None) -> None:
        self._clock = clock
        self._brokers: Brokers | None = None
        self._waits_until = 0.0
        self._accepting = accepting
        # None: there are no relays.
        self._engines = engines
        self._listening = False
        self._draining = False

    def opened(self, brokers: Brokers | None = None, wait_seconds: float = 0.0) -> None:
        """Called when the ports for clients are open; `wait_seconds`: how long brokers may be unknown."""
        self._brokers, self._waits_until = brokers, self._clock() + wait_seconds
        self._listening = True

    def drains(self, draining: bool) -> None:
        """Called when the proxy begins to leave, or stays after all."""
        self._draining = draining

    @property
    def stuck(self) -> str | None:
        """A part of the process that has stopped to work, in words; None if all work."""
        return None if self._engines is None else self._engines.stuck

    @property
    def obstacle(self) -> str | None:
        """The reason why the proxy is not ready, or None if it is."""
        if self._draining:
            return "draining"
        if not self._listening:
            return "not listening yet"
        if self._accepting.paused:
            return "paused by an operator (pulsar-proxy admin resume)"
        if self._brokers is not None and self._clock() < self._waits_until and self._brokers.unproven:
            return "no broker is known to be up yet (readinessBrokerWaitMillis)"
        return None

    def details(self) -> str:
        """Return the parts of the verdict, a line each, without names of brokers: anybody may read this."""
        obstacle = self.obstacle
        found = [f"ready: {'yes' if obstacle is None else f'no, {obstacle}'}"]
        if self._brokers is not None:
            found.append("brokers: " + ", ".join(f"{count} {state}" for state, count in self._brokers.states().items()))
        return "\n".join(found)
