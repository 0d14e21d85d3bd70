"""Compiling of the kernel's functions: with numba, kept on disk if that is possible.

Numba's cache looks at the file of the function that is kept, not at those it calls; `SOURCES_HASH` stands for all of
them, and the function that is kept closes over it.
"""

from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

F = TypeVar("F", bound=Callable[..., Any])


def _hash_of_sources() -> int:
    content = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return int.from_bytes(blake2b(content, digest_size=7).digest(), "big")


SOURCES_HASH: Final = _hash_of_sources()


def compiled(function: F) -> F:
    """Prepare a function that others call: numba compiles it, without wrappers for calls from Python and C."""
    return _made(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def inlined(function: F) -> F:
    """Make a function a part of those that call it.

    A function compiled apart is optimized again with each of its callers, and theirs: one that calls much should be
    inlined, or the first replay begins a minute late.
    """
    return _made(function, inline="always")


def compiled_and_kept(function: F) -> F:
    """Prepare the function that is called from outside; numba keeps it if there is a directory that can be written."""
    try:
        return _made(function, cache=True)
    except RuntimeError:  # numba found no place for a cache
        return _made(function)


def _made(function: F, **options: Any) -> F:
    made: F = numba.njit(nogil=True, error_model="numpy", **options)(function)
    return made
