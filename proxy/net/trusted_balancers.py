"""The load balancers whose word about a client's address counts (trustedLoadBalancerIPAddresses)."""

from collections.abc import Iterable

from proxy.config.keys.networks import networks_in
from proxy.core.addresses import inside, parsed

# In the list: every client of a Unix socket. Such a client has the address `unix:<user>` (`unix_sockets`).
UNIX = "unix"


class TrustedBalancers:
    """The addresses from which PROXY headers and X-Forwarded-For are read; `*` in `networks` means any address."""

    __slots__ = ("_any", "_networks", "_unix")

    def __init__(self, networks: Iterable[str]) -> None:
        listed = [text.strip() for text in networks if text.strip()]
        self._any = "*" in listed
        self._unix = UNIX in listed
        self._networks = [network for text in listed if text not in ("*", UNIX) for network in networks_in(text)]

    def __contains__(self, address: str) -> bool:
        if self._any:
            return True
        if address.partition(":")[0] == UNIX:
            return self._unix
        try:
            return inside(parsed(address), self._networks)
        except ValueError:
            return False

    def client_of(self, accepted_from: str, forwarded_for: str) -> str:
        """Return the client's address by `forwarded_for`, a list to which each balancer has appended its peer.

        With a list of balancers: the last address that is no balancer's, for a client may have sent the rest by itself.
        With `*` there is no way to know, and the first address counts: a claim, good for a log.
        """
        said = _said(forwarded_for)
        if not said or accepted_from not in self:
            return accepted_from
        if self._any:
            return said[0]
        return next((address for address in reversed(said) if address not in self), said[0])

    def seen_client_of(self, accepted_from: str, forwarded_for: str) -> str:
        """Return the client's address as a balancer has seen it: with `*` the last one, which the nearest added.

        Clients take turns by this address. By the first one they could be as many clients as they like.
        """
        said = _said(forwarded_for)
        if self._any and said:
            return said[-1]
        return self.client_of(accepted_from, forwarded_for)


def _said(forwarded_for: str) -> list[str]:
    return [part.strip() for part in forwarded_for.split(",") if part.strip()]
