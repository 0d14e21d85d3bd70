"""Run one test with many rows: one item where `parametrize` makes one a row, and a failure that names every row."""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

LONGEST_NAME = 100


def shown(value: object) -> str:
    return repr(value)[:LONGEST_NAME]


def each(
    names: str | Sequence[str], rows: Iterable[Any], ids: Callable[[Any], object] = shown
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator with the arguments of `parametrize`, for tests that need nothing anew for each row.

    Fixtures are those of the one item. If a row skips, so does the item, unless another one failed.
    """
    named = names.replace(" ", "").split(",") if isinstance(names, str) else list(names)
    kept = [row if len(named) > 1 else (row,) for row in rows]
    assert kept, f"no rows of {named}"

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def over_all(*args: Any, **fixtures: Any) -> None:
            __tracebackhide__ = True
            failed, skipped = list[str](), list[BaseException]()
            for row in kept:
                try:
                    test(*args, **dict(zip(named, row, strict=True)), **fixtures)
                except pytest.skip.Exception as reason:
                    skipped.append(reason)
                # Any failure is one of its row, and the next row has its turn; pytest's own is no Exception.
                except (Exception, pytest.fail.Exception) as error:
                    failed.append(f"{', '.join(str(ids(value)) for value in row)}\n  {type(error).__name__}: {error}")
            if failed:
                raise AssertionError(f"{len(failed)} of {len(kept)} rows failed\n" + "\n".join(failed))
            if skipped:
                raise skipped[0]

        # What pytest looks at for fixtures.
        signature = inspect.signature(test)
        left = [given for name, given in signature.parameters.items() if name not in named]
        over_all.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return over_all

    return decorated
