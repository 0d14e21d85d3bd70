"""The configuration of a proxy with one broker and the keys that a test gives, or what is wrong with them."""

import pytest

from proxy.config.config import Config, ConfigError


def configured(**keys: object) -> Config:
    overrides = {"brokerServiceURL": "pulsar://broker:6650"} | {key: str(value) for key, value in keys.items()}
    return Config.load(overrides=overrides)


def refusal(**keys: object) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        configured(**keys)
    return caught.value
