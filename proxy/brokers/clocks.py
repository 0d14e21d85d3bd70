"""How many request connections to brokers there may be, and the times after which one acts."""

from dataclasses import dataclass
from typing import Self

from proxy.config.config import Config


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
            answer_timeout_seconds=config.seconds(Config.topic_list_broker_answer_timeout_millis),
            idle_seconds=config.seconds(Config.broker_connection_idle_millis),
        )


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """How many connections there may be, their clocks, and how long a challenge may take to be answered."""

    per_key: int
    total: int
    clocks: BrokerClocks
    challenge_seconds: float = 60.0

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the limits of a configuration."""
        return cls(
            per_key=config.broker_connections_per_key,
            total=config.broker_connections_total,
            clocks=BrokerClocks.of(config),
            challenge_seconds=config.authentication_refresh_check_seconds,
        )
