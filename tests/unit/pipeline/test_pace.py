"""When what follows from a stream's batches is made anew."""

from collections.abc import Callable

from pipeline.running.pace import Pace


class Work:
    """Takes time that does not pass; counts."""

    def __init__(self) -> None:
        self.now = 100.0
        self.takes = 0.0
        self.done = 0
        self.meanwhile: Callable[[], None] = lambda: None

    def __call__(self) -> None:
        self.meanwhile()
        self.now += self.takes
        self.done += 1


def after(pace: Pace, work: Work, seconds: float) -> int:
    """Say how often the work was done, once so much time has passed and it was asked for."""
    work.now += seconds
    pace.keep(work)
    return work.done


def test_rest_is_longer_after_work_that_took_long() -> None:
    work = Work()
    work.takes = 30.0
    pace = Pace(60, lambda: work.now)
    pace.came()
    assert after(pace, work, 1) == 1
    pace.came()
    assert after(pace, work, 269) == 1
    assert after(pace, work, 1) == 2


def test_batch_that_comes_during_the_work_is_not_forgotten() -> None:
    work = Work()
    pace = Pace(60, lambda: work.now)
    work.meanwhile = pace.came
    pace.came()
    assert after(pace, work, 1) == 1
    work.meanwhile = lambda: None
    assert after(pace, work, 60) == 2
    assert after(pace, work, 60) == 2
