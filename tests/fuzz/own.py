"""A coverage-guided loop without libFuzzer, for interpreters that Atheris has no wheel for, and for `make rest`.

Rule: an input is kept if it takes a step between two lines of the target's modules that no input before it took. The
dice are seeded, so a run can be repeated. Sources: the mutations are those of AFL and libFuzzer.
"""

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, Final

from tests.fuzz.targets import LONGEST, Target

Arc = tuple[CodeType, int, int]
_EDGES: Final = (0, 1, 2, 4, 8, 10, 0x12, 0x3A, 0x7F, 0x80, 0xFF, 0x0D, 0x0A, 0x20, 0x5C)


@dataclass
class Outcome:
    """What a run did: inputs, steps between lines, the inputs that found them, and the input that broke the rule."""

    inputs: int = 0
    arcs: set[Arc] = field(default_factory=set)
    kept: list[bytes] = field(default_factory=list)
    broke: bytes | None = None
    error: BaseException | None = None


def fuzz(target: Target, seeds: Sequence[bytes], runs: int, seed: int = 1) -> Outcome:
    """Try the seeds, then `runs` mutations of what found something new; stop at the first input that breaks a rule."""
    dice, outcome = random.Random(seed), Outcome()
    files = {sys.modules[name].__file__ for name in target.modules}
    for data in seeds:
        if not _try(target, data, outcome, files):
            return outcome
    outcome.kept = outcome.kept or [b""]
    while outcome.inputs < runs + len(seeds):
        data = mutated(outcome.kept, dice)
        if not _try(target, data, outcome, files):
            return outcome
    return outcome


def _try(target: Target, data: bytes, outcome: Outcome, files: set[str | None]) -> bool:
    found: set[Arc] = set()

    def call(frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        del event, argument
        if frame.f_code.co_filename not in files:
            return None
        last = frame.f_lineno

        def line(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
            nonlocal last
            del event, argument
            found.add((frame.f_code, last, frame.f_lineno))
            last = frame.f_lineno
            return line

        return line

    before = sys.gettrace()
    sys.settrace(call)
    try:
        target.run(data)
    except Exception as error:
        outcome.broke, outcome.error = data, error
    finally:
        sys.settrace(before)
    outcome.inputs += 1
    if not found <= outcome.arcs:
        outcome.arcs |= found
        outcome.kept.append(data)
    return outcome.broke is None


def mutated(kept: Sequence[bytes], dice: random.Random) -> bytes:
    """Return a kept input with a few changes, or a piece of another one in it."""
    data = bytearray(dice.choice(kept))
    for _ in range(1 << dice.randrange(4)):
        at = dice.randrange(len(data) + 1)
        match dice.randrange(7):
            case 0 if at < len(data):
                data[at] ^= 1 << dice.randrange(8)
            case 1 if at < len(data):
                data[at] = dice.choice(_EDGES)
            case 2:
                data[at:at] = bytes(dice.choice(_EDGES) for _ in range(dice.randint(1, 4)))
            case 3:
                del data[at : at + dice.randint(1, 16)]
            case 4 if at < len(data):
                data[at] = (data[at] + dice.choice((-1, 1))) % 256
            case 5:
                size = dice.choice((1, 2, 4))
                data[at : at + size] = dice.randrange(1 << (8 * size)).to_bytes(size, "big")
            case _:
                other = dice.choice(kept)
                begin = dice.randrange(len(other) + 1)
                data[at : at + dice.choice((0, 8))] = other[begin : begin + dice.randint(1, 64)]
    return bytes(data[:LONGEST])
