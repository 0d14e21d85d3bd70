"""Own how a test that is a coroutine runs on both real loops."""

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from tests.support.loops.loops import LoopFactory, both_loops, run_on


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on both real loops."""

    @functools.wraps(test)
    def run(*args: Any, loop_factory: LoopFactory, **kwargs: Any) -> None:
        run_on(loop_factory, test(*args, **kwargs))

    signature = inspect.signature(test)
    own = inspect.Parameter("loop_factory", inspect.Parameter.KEYWORD_ONLY)
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), own])  # type: ignore[attr-defined]
    marked: Callable[..., None] = both_loops(run)
    return marked
