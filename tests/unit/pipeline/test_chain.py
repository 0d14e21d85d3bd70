"""Jobs one after another: who takes whom with him, what is printed, and the exit code."""

from collections.abc import Callable

from pipeline.core.errors import Calm, ExitCode, PipelineError
from pipeline.running.chain import Outcome, Step, run_steps


def fails(code: ExitCode) -> Callable[[Outcome], object]:
    def work(_: Outcome) -> object:
        raise PipelineError(f"with {code.name}", code)

    return work


def gives(text: str) -> Callable[[Outcome], object]:
    return lambda _: text


def ran(*steps: Step) -> tuple[Outcome, list[str]]:
    lines: list[str] = []
    clock = iter(range(0, 1000, 2))
    return run_steps(steps, lines.append, lambda: next(clock)), lines


def test_each_job_says_what_came_of_it_and_how_long_it_took() -> None:
    outcome, lines = ran(Step("one", gives("1 row")), Step("two", gives("2 rows"), ("one",)))
    assert outcome.code == ExitCode.OK
    assert lines == ["[1/2] one ...", "[1/2] one: 1 row (2.0 s)", "[2/2] two ...", "[2/2] two: 2 rows (2.0 s)"]


def test_a_job_that_fails_takes_those_with_it_that_need_it_and_no_other() -> None:
    outcome, lines = ran(
        Step("one", gives("fine")),
        Step("two", fails(ExitCode.USAGE)),
        Step("three", gives("never"), ("two",)),
        Step("four", gives("never"), ("three",)),
        Step("five", gives("fine"), ("one",)),
    )
    assert list(outcome.failed) == ["two", "three", "four"]
    assert list(outcome.wrong) == ["two"]
    assert lines[-4:] == [
        "[3/5] three: skipped, it needs two",
        "[4/5] four: skipped, it needs three",
        "[5/5] five ...",
        "[5/5] five: fine (2.0 s)",
    ]


def test_the_exit_code_is_that_of_the_first_job_that_failed() -> None:
    outcome, lines = ran(Step("one", fails(ExitCode.CALIBRATION)), Step("two", fails(ExitCode.SOURCE)))
    assert outcome.code == ExitCode.CALIBRATION
    assert lines[1] == "[1/2] one: failed: with CALIBRATION (2.0 s)"


def test_a_calm_time_is_no_failure_though_there_is_no_advice() -> None:
    def calm(_: Outcome) -> object:
        raise Calm("nobody waited", ExitCode.CALIBRATION)

    outcome, lines = ran(Step("advise", calm), Step("drift", gives("never"), ("advise",)))
    assert outcome.code == ExitCode.OK
    assert list(outcome.failed) == ["advise", "drift"]
    assert lines[1:] == ["[1/2] advise: nobody waited (2.0 s)", "[2/2] drift: skipped, it needs advise"]
