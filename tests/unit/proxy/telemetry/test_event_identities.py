"""Names in events: the same for the same, another for another, and never what they stand for."""

import tracemalloc
from collections.abc import Callable
from itertools import count

import pytest

from proxy.auth.identity import AuthData, Principal
from proxy.telemetry.events.identities import (
    LONGEST_REMEMBERED,
    REMEMBERED,
    EventIdentities,
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


@pytest.mark.parametrize(
    ("ask", "remembered"),
    [
        (lambda names, number: names.client(f"192.0.2.1:{number}"), REMEMBERED),
        (lambda names, number: names.question(None, b"%d" % number), REMEMBERED),
        (lambda names, number: names.pattern(f"{number}{'x' * LONGEST_REMEMBERED}"), 0),
        (lambda names, number: names.question(Principal("alice", AuthData("token", b"%d" % number)), b"question"), 0),
    ],
    ids=["clients", "questions", "long texts", "credentials"],
)
def test_what_is_remembered_is_bounded(ask: Callable[[EventIdentities, int], str], remembered: int) -> None:
    identities, numbers = EventIdentities(KEY), count()
    for _ in range(remembered):
        ask(identities, next(numbers))
    tracemalloc.start()
    try:
        # What takes the place of another is counted, the other is not.
        for _ in range(remembered):
            ask(identities, next(numbers))
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(REMEMBERED):
            ask(identities, next(numbers))
        assert tracemalloc.get_traced_memory()[0] - before < 50_000
    finally:
        tracemalloc.stop()
