import pytest

from proxy.auth.client_credentials import ClientCredentials, Look
from proxy.auth.identity import AuthData, Authenticated, AuthenticationFailed, Principal

NOON, INTERVAL = 1000.0, 60.0
PRESENTED = AuthData("token", b"first")


def credentials(expires_at: float | None = NOON, *, forward: bool = True, renewable: bool = True) -> ClientCredentials:
    return ClientCredentials(Authenticated("alice", expires_at), PRESENTED, forward=forward, renewable=renewable)


def test_what_is_not_forwarded_is_not_kept() -> None:
    assert credentials(forward=False).principal == Principal("alice")
    assert credentials().principal == Principal("alice", PRESENTED)


def test_who_presented_nothing_has_nothing_to_forward() -> None:
    nothing = ClientCredentials(Authenticated("anonymous"), AuthData("none", b""), forward=True, renewable=True)
    assert nothing.principal == Principal("anonymous")


@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize(("renewable", "found"), [(True, Look.ASK), (False, Look.EXPIRED)])
def test_only_a_client_that_can_renew_is_asked(forward: bool, renewable: bool, found: Look) -> None:
    given = credentials(forward=forward, renewable=renewable)
    assert given.look(NOON - 1, 0.0, INTERVAL) is Look.VALID
    assert given.look(NOON, 0.0, INTERVAL) is found


def test_what_never_expires_is_never_asked_for() -> None:
    assert credentials(None).look(1e12, 1e12, INTERVAL) is Look.VALID


def test_an_answer_has_one_interval() -> None:
    given = credentials()
    given.asked(10.0)
    assert given.look(NOON, 69.4, INTERVAL) is Look.VALID
    # A look that comes a little early is the one for this interval.
    assert given.look(NOON, 69.6, INTERVAL) is Look.UNANSWERED


def test_who_was_asked_for_a_broker_must_answer_before_anything_expires() -> None:
    given = credentials(None)
    given.asked(10.0)
    assert given.look(NOON, 70.0, INTERVAL) is Look.UNANSWERED


def test_an_answer_that_is_being_verified_is_not_late() -> None:
    given = credentials()
    given.asked(10.0)
    assert given.answered()
    assert given.under_way
    assert given.look(NOON, 1000.0, INTERVAL) is Look.VALID


def test_an_answer_counts_once_and_only_when_asked_for() -> None:
    given = credentials()
    assert not given.answered()
    given.asked(10.0)
    assert given.answered()
    assert not given.answered()


def test_newer_ones_take_the_place_of_the_old() -> None:
    given = credentials()
    given.asked(10.0)
    given.answered()
    given.renewed(Authenticated("alice", NOON + 500), AuthData("token", b"second"))
    assert given.principal == Principal("alice", AuthData("token", b"second"))
    assert not given.under_way
    assert given.look(NOON + 499, 0.0, INTERVAL) is Look.VALID
    assert given.look(NOON + 500, 0.0, INTERVAL) is Look.ASK


def test_the_role_cannot_change() -> None:
    given = credentials()
    given.asked(10.0)
    given.answered()
    with pytest.raises(AuthenticationFailed, match="another role"):
        given.renewed(Authenticated("bob"), AuthData("token", b"second"))
    assert given.principal == Principal("alice", PRESENTED)


def test_nothing_shows_what_was_presented() -> None:
    assert "first" not in repr(credentials().principal)
    assert "first" not in str(credentials().principal)
