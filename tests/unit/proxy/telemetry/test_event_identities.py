"""Names in events: the same for the same, another for another, and never what they stand for."""

import itertools

import pytest

from proxy.auth.identity import AuthData, Principal
from proxy.telemetry.events.identities import (
    LONGEST_IDENTITY,
    LONGEST_REMEMBERED,
    REMEMBERED,
    EventIdentities,
    bounded,
    key_of,
)

KEY = key_of("salt")
HASHED = EventIdentities(KEY)


@pytest.mark.parametrize("text", ["alice", "", "é\ud800", "x" * 100_000])
def test_names_are_sixteen_hex_digits_of_the_text_and_its_kind(text: str) -> None:
    names = [
        HASHED.principal(text),
        HASHED.client(text),
        HASHED.pattern(text),
        HASHED.question(None, text.encode("utf-8", "replace")),
    ]
    assert len(set(names)) == 4, "equal texts of two kinds are two names"
    for name in names:
        assert name is not None
        assert len(name) == 16
        assert int(name, 16) >= 0
    assert names[:3] == [
        EventIdentities(KEY).principal(text),
        EventIdentities(KEY).client(text),
        EventIdentities(KEY).pattern(text),
    ]


def test_proxies_with_one_salt_agree_and_others_do_not() -> None:
    keys = [key_of("salt"), key_of("salt"), key_of("pepper"), key_of("s" * 500), key_of(""), key_of("")]
    names = [EventIdentities(key).principal("alice") for key in keys]
    assert names[0] == names[1]
    assert len(set(names)) == 5


def test_nobody_has_no_name() -> None:
    assert HASHED.principal(None) is None


def test_a_role_keeps_its_name_with_newer_credentials_but_asks_another_question() -> None:
    first, second = (Principal("alice", AuthData("token", token)) for token in (b"first", b"second"))
    assert HASHED.principal(first) == HASHED.principal(second) == HASHED.principal(Principal("alice"))
    asked = [HASHED.question(principal, b"question") for principal in (None, Principal("alice"), first, second)]
    assert len(set(asked)) == 4


@pytest.mark.parametrize(
    ("one", "other"),
    [(("a", b"bc"), ("ab", b"c")), ((None, b"a"), ("", b"a")), (("a", b""), (None, b"a")), (("a", b"x"), ("a", b"y"))],
)
def test_questions_that_differ_have_different_names(
    one: tuple[str | None, bytes], other: tuple[str | None, bytes]
) -> None:
    assert HASHED.question(*one) != HASHED.question(*other)
    assert HASHED.question(*one) == EventIdentities(KEY).question(*one)


def test_plain_role_that_is_no_utf_8_does_not_cost_the_event() -> None:
    assert EventIdentities(KEY, plain=True).principal("half \ud800 of a pair") == "half ? of a pair"


def test_plain_names_are_roles_and_addresses_but_never_patterns() -> None:
    plain = EventIdentities(KEY, plain=True)
    assert plain.principal(Principal("alice")) == "alice"
    assert plain.client("192.0.2.1:5000") == "192.0.2.1:5000"
    assert plain.pattern("persistent://t/n/.*") == HASHED.pattern("persistent://t/n/.*")
    assert len(plain.client("x" * 1000)) == LONGEST_IDENTITY
    assert plain.principal("x" * 1000) == plain.principal(Principal("x" * 1000)) == "x" * LONGEST_IDENTITY


def test_what_is_remembered_is_bounded_in_number_and_length() -> None:
    identities = EventIdentities(KEY)
    for number, kind in itertools.product(range(REMEMBERED + 10), (identities.client, identities.pattern)):
        kind(f"192.0.2.1:{number}")
    long = "x" * (LONGEST_REMEMBERED + 1)
    assert identities.pattern(long) == HASHED.pattern(long)
    closed_over = [cell.cell_contents for cell in identities._client.__closure__ or ()]
    (cache,) = [found for found in closed_over if hasattr(found, "cache_info")]
    assert cache.cache_info().currsize == cache.cache_info().maxsize == REMEMBERED
    before = cache.cache_info().misses
    identities.client(long)
    assert cache.cache_info().misses == before, "a long text is not even looked for"


def test_questions_are_remembered_up_to_a_bound_and_never_with_credentials_in_them() -> None:
    identities = EventIdentities(KEY)
    secret = Principal("alice", AuthData("token", b"s3cret"))
    for number in range(REMEMBERED + 10):
        identities.question(None, b"%d" % number)
    known = identities._asked.cache_info()
    assert known.currsize == known.maxsize == REMEMBERED
    for principal, question in ((secret, b"question"), (None, b"x" * LONGEST_REMEMBERED)):
        assert identities.question(principal, question) == HASHED.question(principal, question)
    assert identities._asked.cache_info().misses == known.misses, "not even looked for"


def test_texts_that_clients_choose_are_cut() -> None:
    assert bounded("a" * 300) == "a" * 256
    assert bounded("abc", 2) == "ab"
    assert bounded("abc") == "abc"
