"""Count the checks of clients' credentials."""

KEY_FILE_RESULTS = ("applied", "refused")


class AuthenticationCounters:
    """Counters of authentication (`proxy.auth.providers.registry.AuthenticationObserver`).

    Labels are words of this proxy only, so a client cannot create new ones.
    """

    __slots__ = ("expired_tokens", "failures", "reloads", "successes")

    def __init__(self) -> None:
        self.successes: dict[tuple[str, ...], int] = {}
        self.failures: dict[tuple[str, ...], int] = {}
        self.expired_tokens = 0
        self.reloads: dict[str, int] = dict.fromkeys(KEY_FILE_RESULTS, 0)

    def succeeded(self, provider: str, method: str) -> None:
        """Count a role that was proven."""
        self.successes[provider, method] = self.successes.get((provider, method), 0) + 1

    def failed(self, provider: str, method: str, reason: str) -> None:
        """Count credentials that were refused."""
        self.failures[provider, method, reason] = self.failures.get((provider, method, reason), 0) + 1

    def expired(self) -> None:
        """Count a token that has expired."""
        self.expired_tokens += 1

    def reloaded(self, result: str) -> None:
        """Count the reload of a key or password file that changed."""
        self.reloads[result] += 1
