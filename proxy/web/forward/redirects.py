"""Check the target of a broker's redirect, which the proxy follows on behalf of its client; no I/O but DNS.

A broker that does not own a namespace redirects to the broker that does. A client outside the cluster cannot follow, so
the proxy follows, with the client's credentials; a redirect of a server of the operator's own (`httpReverseProxy`) is
passed on, as the Java proxy does. A redirect may lead only to the configured servers, or to a host of
`brokerProxyAllowedHostNames` whose addresses are in `brokerProxyAllowedIPAddresses`, at a port of
`brokerWebServiceAllowedTargetPorts`; never from TLS to plain text. The proxy's own credentials follow only where a
configured server, or a server that got them before in this chain, redirects to. Where any other server redirects to,
the client's credentials do not follow either, unless it is the same origin.
"""

from typing import Final

from yarl import URL

from proxy.brokers.target import BrokerAddress, TargetValidator
from proxy.core.errors import TargetRefused
from proxy.web.http.errors import HttpRefused

MAX_REDIRECTS: Final = 10
_SAME_REQUEST: Final = frozenset({307, 308})
_AS_A_GET: Final = frozenset({301, 302, 303})


def follows(status: int, method: str) -> bool:
    """Return whether the proxy may follow a redirect: 307 and 308 always, others only for GET and HEAD."""
    return status in _SAME_REQUEST or (status in _AS_A_GET and method in ("GET", "HEAD"))


class RedirectRules:
    """The allowed targets of redirects.

    `brokers` are the URLs of brokers and function workers, `third_parties` those of `httpReverseProxy` routes.
    """

    def __init__(
        self,
        brokers: tuple[str, ...],
        validator: TargetValidator,
        third_parties: tuple[str, ...] = (),
        *,
        to_any_target: bool = False,
    ) -> None:
        # `brokerProxyCredentialsToAnyTarget`.
        self._to_any_target = to_any_target
        own = {_place(URL(url)) for url in brokers}
        self._third_parties = {_place(URL(url)) for url in third_parties} - own
        self._own = own
        self._configured = own | self._third_parties
        self._validator = validator

    async def target(self, asked: URL, location: str | None, followed: int = 0) -> URL:
        """Return the URL that `location` in the answer of `asked` leads to, after `followed`; raises HttpRefused."""
        if followed == MAX_REDIRECTS:
            raise _refusal(f"brokers redirected more than {MAX_REDIRECTS} times")
        if not location:
            raise _refusal("a broker redirected without saying where to")
        try:
            target = _url(location, asked)
            place = _place(target)
            names_user = target.user is not None or target.password is not None
        except ValueError as error:
            raise _refusal("a broker redirected to what is no url") from error
        if target.scheme not in ("http", "https") or not target.host or names_user:
            raise _refusal("a broker redirected to what is no http url of a host")
        if asked.scheme == "https" and target.scheme != "https":
            raise _refusal("a broker redirected from https to http")
        if place not in self._configured:
            await self._check(target)
        return target.with_fragment(None)

    def is_third_party(self, url: URL) -> bool:
        """Return whether an allowed server is neither broker nor function worker."""
        return _place(url) in self._third_parties

    def trusted(self, url: URL, *, named_by_trusted: bool) -> bool:
        """Return whether an allowed server may get the proxy's own credentials and the role of its client.

        `named_by_trusted`: a server that may get them has redirected to this one.
        """
        place = _place(url)
        if place in self._own or place in self._third_parties:
            return place in self._own
        return named_by_trusted or self._validator.narrowed or self._to_any_target

    async def _check(self, target: URL) -> None:
        assert target.host is not None
        port = target.port or 0
        try:
            await self._validator.resolve(BrokerAddress(target.host, port))
        except TargetRefused as refused:
            text = str(refused).replace("brokerProxyAllowedTargetPorts", "brokerWebServiceAllowedTargetPorts")
            raise _refusal(f"a broker redirected to where this proxy may not go: {text}") from refused


def same_origin(one: URL, other: URL) -> bool:
    """Return whether two URLs have scheme, host and port in common."""
    return _place(one) == _place(other)


def _refusal(reason: str) -> HttpRefused:
    return HttpRefused(502, reason, "redirect")


def _url(location: str, asked: URL) -> URL:
    """Return the URL that `location` leads to; raises ValueError, as do its parts when they are asked for."""
    if not location.isascii() or not location.isprintable() or " " in location:
        # A blank would end the path in the line of the request.
        raise ValueError("expected printable ascii without blanks")
    return asked.join(URL(location, encoded=True))


def _place(url: URL) -> tuple[str, str, int]:
    return url.scheme, (url.host or "").lower(), url.port or 0
