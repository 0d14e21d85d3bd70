"""A server's context whose clients cannot resume a session: each connection shows its certificate, and it is checked.

A session that is resumed brings along the certificate that was checked when it began, however long ago: neither its
expiry nor the lists of revoked ones are looked at again (RFC 8446, 4.6.1), and the client gets a fresh ticket.

Tickets can be turned off. Not so OpenSSL's cache of TLS 1.2 sessions: the `ssl` module has no switch for it. The cache
belongs to the context that a connection was made with, also if the connection gets another context before its
handshake. So connections are made with a bare context that has nothing but a cache, and that serves until a session
of TLS 1.2 is in it.
"""

import ssl
from typing import Any, Final

_KEEPS_SESSIONS: Final = frozenset({"TLSv1.2", "TLSv1.1", "TLSv1"})


class _Unresumed(ssl.SSLObject):
    """A connection whose session is forgotten before any other connection is made."""

    def do_handshake(self) -> None:
        """Run a step of the handshake."""
        super().do_handshake()
        context = self.context
        if isinstance(context, UnresumedContext) and self.version() in _KEEPS_SESSIONS:
            context.forget()


class UnresumedContext(ssl.SSLContext):
    """A context for accepted connections, through `wrap_bio`; settings that change after the first are not heeded."""

    _cache: ssl.SSLContext | None = None

    def forget(self) -> None:
        """Replace the cache: connections to come find no session of those before."""
        self._cache = None

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Return a connection that looks for its session where none is."""
        if self._cache is None:
            self._cache = self._bare()
        made = self._cache.wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        # Certificate, authorities, revocation lists and ciphers are those of the context from here on.
        made.context = self
        return made

    def wrap_socket(self, *_: Any, **__: Any) -> ssl.SSLSocket:
        """Raise NotImplementedError: such a connection would use the cache of this context."""
        raise NotImplementedError("connections are made by wrap_bio")

    def _bare(self) -> ssl.SSLContext:
        """Return a context with all that a connection takes from the context that it was made with."""
        bare = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        bare.sslobject_class = _Unresumed
        bare.verify_mode = self.verify_mode
        bare.verify_flags = self.verify_flags
        bare.options = self.options
        bare.minimum_version, bare.maximum_version = self.minimum_version, self.maximum_version
        bare.num_tickets = self.num_tickets
        return bare
