"""The bound on redirects stands twice: for lookups of the binary protocol, and over HTTP."""

from proxy.requests import lookups
from proxy.web.forward import redirects


def test_lookups_follow_as_many_redirects_as_http() -> None:
    assert lookups.MAX_REDIRECTS == redirects.MAX_REDIRECTS
