"""The ends of a job: one clear error, and an exit code that scripts can rely on.

Rule: whatever a user can get wrong raises `PipelineError` with what was got, what was expected and what to change; only
a fault of ours may end in a traceback.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of `pulsar-proxy-pipeline`."""

    OK = 0
    FAILED = 1  # a fault of ours, or of the machine
    USAGE = 2  # options or input that make no sense: no files, wrong schema, an empty window
    CALIBRATION = 3  # the model does not reproduce what was recorded: no advice
    DATA_LOSS = 4  # messages of a topic that were to be read are gone
    SOURCE = 5  # a topic or a cluster cannot be reached, or does not keep its messages
    QUARANTINED = 6  # more of what was read is no event than --fail-if-quarantined allows


class PipelineError(Exception):
    """A job cannot go on; the text is for the user, lower case."""

    def __init__(self, message: str, code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(message)
        self.code = code


class Calm(PipelineError):
    """Nobody waited: there is nothing to advise by, and nothing is wrong."""
