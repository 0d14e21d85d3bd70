"""The times after which a connection to a broker acts."""

from dataclasses import dataclass
from typing import Final, Self

from proxy.config.config import Config

# A connection that nobody used for so long is closed: the next storm has those of the last, and no more.
IDLE_SECONDS: Final = 60.0
# A broker has the time of the request, and no less than this: one that only rests keeps its connection.
ANSWER_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class BrokerClocks:
    """The times after which a broker connection acts, in seconds."""

    keep_alive_seconds: float
    answer_timeout_seconds: float
    idle_seconds: float

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the times of a configuration."""
        return cls(
            keep_alive_seconds=config.keep_alive_interval_seconds,
            answer_timeout_seconds=max(ANSWER_SECONDS, config.seconds(Config.topic_list_request_timeout_millis)),
            idle_seconds=IDLE_SECONDS,
        )
