"""Jobs one after another: what each needs, how long it took, and what the whole ends with.

Rule: a job that fails takes those with it that need it, and no other; the exit code is that of the first that failed
for another reason than that nobody waited.
Only errors of users are caught: a fault of ours ends everything with its traceback.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pipeline.core.errors import Calm, ExitCode, PipelineError


@dataclass(frozen=True, slots=True)
class Outcome:
    """The jobs that failed so far, in that order, each with its reason; a skipped job has that of the job it needed."""

    failed: Mapping[str, PipelineError] = field(default_factory=dict)

    @property
    def wrong(self) -> Mapping[str, PipelineError]:
        """Return those of them in which something is wrong, without the skipped."""
        names: dict[PipelineError, str] = {}
        for name, error in self.failed.items():
            names.setdefault(error, name)
        return {name: error for error, name in names.items() if not isinstance(error, Calm)}

    @property
    def code(self) -> int:
        """Return the exit code of the whole."""
        return next((error.code for error in self.wrong.values()), ExitCode.OK)


@dataclass(frozen=True, slots=True)
class Step:
    """A job: `work` is told what has failed so far, and its result is printed."""

    name: str
    work: Callable[[Outcome], object]
    needs: tuple[str, ...] = ()


def run_steps(
    steps: Iterable[Step], say: Callable[[str], None], seconds: Callable[[], float] = time.monotonic
) -> Outcome:
    """Run the jobs in their order, and say for each what came of it."""
    jobs = list(steps)
    failed: dict[str, PipelineError] = {}
    for number, step in enumerate(jobs, 1):
        place = f"[{number}/{len(jobs)}] {step.name}"
        if needed := next((name for name in step.needs if name in failed), None):
            failed[step.name] = failed[needed]
            say(f"{place}: skipped, it needs {needed}")
            continue
        say(f"{place} ...")
        begin = seconds()
        try:
            found: object = step.work(Outcome(dict(failed)))
        except PipelineError as error:
            failed[step.name] = error
            found = error if isinstance(error, Calm) else f"failed: {error}"
        say(f"{place}: {found} ({seconds() - begin:.1f} s)")
    return Outcome(failed)
