"""Our proxy says and does what the Java proxy 4.0.8 was recorded to, but for the differences that are listed."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import uvloop

from tests.transcripts.compare import Found
from tests.transcripts.differences import REASONS
from tests.transcripts.model import read_recorded
from tests.transcripts.replay import found_in
from tests.transcripts.rules import Reason, Rule, judge
from tests.transcripts.scripts import GROUPS
from tests.transcripts.token_differences import TOKEN_REASONS

WITH_AUTHENTICATION = ("token",)
WITHOUT = tuple(group for group in GROUPS if group not in WITH_AUTHENTICATION)


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.mark.parametrize(
    ("groups", "reasons"),
    [(WITHOUT, REASONS), (WITH_AUTHENTICATION, TOKEN_REASONS)],
    ids=["without authentication", "with tokens"],
)
async def test_ours_differs_from_the_java_proxy_in_what_is_listed_and_in_nothing_else(
    groups: tuple[str, ...], reasons: tuple[Reason, ...]
) -> None:
    problems = judge(await found_in(groups), reasons)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("group", GROUPS)
def test_each_script_is_recorded_and_each_recording_has_its_script(group: str) -> None:
    assert list(read_recorded(group)) == [script.name for script in GROUPS[group]]


RULE = Rule(1, "a script of …", "client, 1", "END", "PONG …")
FOUND = Found("client, 1", "END", 'PONG {"a": 1}')


@pytest.mark.parametrize(
    ("found", "rules"),
    [(replace(FOUND, ours="PING"), [RULE]), (FOUND, []), (FOUND, [replace(RULE, times=2)])],
    ids=["other text", "not listed", "listed too often"],
)
def test_a_difference_that_is_not_listed_exactly_is_a_problem(found: Found, rules: list[Rule]) -> None:
    assert not judge({"a script of x": [FOUND]}, [Reason("title", "why", (RULE,))])
    assert judge({"a script of x": [found]}, [Reason("title", "why", tuple(rules))])
