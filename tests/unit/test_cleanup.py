"""The lint of cleanups: refused examples beside the code to write instead."""

import pytest

from scripts import check_cleanup
from tests.support.each import each

# Refused, passed: bodies of an asynchronous function.
CLEANUPS = [
    # The defect that the lint is for: a cancel inside `stop` lost the permits of a copy.
    (
        "try: pass\nfinally:\n  await body.stop()\n  copy.give_up()",
        "try: pass\nfinally:\n  copy.give_up()\n  await body.stop()",
    ),
    (
        "try: pass\nfinally:\n  await body.stop()\n  copy.give_up()",
        "try: pass\nfinally:\n  try:\n    await body.stop()\n  finally:\n    copy.give_up()",
    ),
    (
        "try: pass\nfinally:\n  try:\n    await body.stop()\n    copy.give_up()\n  finally:\n    pass",
        "try: pass\nfinally:\n  if body:\n    await body.stop()",
    ),
    (
        "try: pass\nexcept:\n  await stop()\n  permit.release()\n  raise",
        "try: pass\nexcept:\n  permit.release()\n  await stop()\n  raise",
    ),
    (
        "try: pass\nexcept (OSError, BaseException):\n  await stop()\n  permit.release()",
        "try: pass\nexcept OSError:\n  await again()\n  count()",
    ),
    (
        "try: pass\nexcept asyncio.CancelledError:\n  if late:\n    await stop()\n  permit.release()",
        "try: pass\nexcept asyncio.CancelledError:\n  permit.release()\n  if late:\n    await stop()\n  raise",
    ),
    (
        "try: pass\nfinally:\n  for each in opened:\n    await each.close()",
        "try: pass\nfinally:\n  for each in opened:\n    each.close()",
    ),
    ("try: pass\nfinally:\n  release(await found())", "try: pass\nfinally:\n  await release(found)"),
    (
        "try: pass\nfinally:\n  async with lock:\n    held.clear()",
        "try: pass\nfinally:\n  async with asyncio.timeout(1):\n    await ended()",
    ),
    (
        "try: pass\nfinally:\n  if await stopped():\n    permit.release()",
        "try: pass\nfinally:\n  with suppress(OSError):\n    await stopped()",
    ),
    (
        "permit = await memory.acquire(1)\nawait connected()\ntry: pass\nfinally: permit.release()",
        "permit = await memory.acquire(1)\nbegan = now()\ntry: await connected()\nfinally: permit.release()",
    ),
    (
        "slot = lookups.try_begin()\nif slot:\n  await serve()",
        "slot = lookups.try_begin()\nwith slot:\n  await serve()",
    ),
    (
        "place = await places.enter(network, 1)\nawait connected()\nplace.leave()",
        "place = await places.enter(network, 1)\ntry: await connected()\nfinally: place.leave()",
    ),
    (
        "place = await list_places.begin(role, 1)\nif place:\n  await serve()",
        "place = await list_places.begin(role, 1)\nif place is None:\n  return\nwith place:\n  await serve()",
    ),
    (
        "arrival = arrivals.take(sock)\nawait shaken()",
        "arrival = arrivals.take(sock)\narrival.connect(loop)\nreturn arrival",
    ),
    (
        "found = space.reserve(1, key)\nawait written(found)\nfound.release()",
        "found = space.reserve(1, key)\ntry: await written(found)\nfinally: found.release()",
    ),
]
# A turn that raised was the last: the flag said for ever that it was under way.
FLAGS = [
    (
        "self._busy = True\nself.step()\nself._busy = False",
        "self._busy = True\ntry: self.step()\nfinally: self._busy = False",
    ),
    (
        "self._busy = True\nwhile self.left:\n  self.step()\nself._busy = self._late = False",
        "self._busy = True\nself._left = self._late\nself._busy = False",
    ),
    ("self._busy = True\nawait self.gate\nself._busy = False", "self._busy = False\nself.step()\nself._busy = True"),
]
MANAGERS = [
    ("yield permit\npermit.release()", "try: yield permit\nfinally: permit.release()"),
    ("with file:\n  yield file\n  file.flush()", "with file:\n  yield file"),
]


def of_function(body: str, name: str = "serve", decorator: str = "") -> list[str]:
    lines = "".join(f"  {line}\n" for line in body.splitlines())
    return [fault.reason for fault in check_cleanup.check_source(f"{decorator}\nasync def {name}():\n{lines}")]


@each(("refused", "passed"), CLEANUPS)
def test_a_cleanup_gives_back_before_it_awaits(refused: str, passed: str) -> None:
    assert len(of_function(refused)) == 1
    assert of_function(passed) == []


@each(("refused", "passed"), FLAGS)
def test_a_flag_that_calls_stand_behind_is_reset_although_they_raise(refused: str, passed: str) -> None:
    assert of_function(refused) == [check_cleanup.STAYS_TRUE]
    assert of_function(passed) == []


@each(("refused", "passed"), MANAGERS)
def test_a_context_manager_gives_back_although_its_block_raises(refused: str, passed: str) -> None:
    for decorator in ("@asynccontextmanager", "@contextlib.asynccontextmanager", "@contextmanager"):
        assert len(of_function(refused, decorator=decorator)) == 1
        assert of_function(passed, decorator=decorator) == []
    assert of_function(refused) == []


def test_an_aexit_is_a_cleanup_as_a_whole() -> None:
    assert of_function("await stop()\npermit.release()", "__aexit__") == [check_cleanup.AFTER_AWAIT]
    assert of_function("permit.release()\nawait stop()", "__aexit__") == []


def test_a_function_that_a_cleanup_defines_is_not_run_by_it() -> None:
    assert of_function("try: pass\nfinally:\n  async def later(): await stop()\n  permit.release()") == []


def test_the_packages_give_back_before_they_await(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_cleanup.report([]) == 0, capsys.readouterr().out
