"""Whether this proxy should get new clients, as probes and orchestrators see it."""


class Readiness:
    """Set by the server and read by probes: whether this proxy should get new clients."""

    __slots__ = ("draining", "listening", "stuck")

    def __init__(self) -> None:
        self.listening = False
        self.draining = False
        # A part of the process that has stopped to work, in words; None if all work.
        self.stuck: str | None = None

    @property
    def obstacle(self) -> str | None:
        """The reason why the proxy is not ready, or None if it is."""
        if self.draining:
            return "draining"
        return None if self.listening else "not listening yet"
