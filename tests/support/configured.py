"""The configuration of a proxy with one broker, and the keys that a test gives."""

from proxy.config.config import Config


def configured(**keys: object) -> Config:
    overrides = {"brokerServiceURL": "pulsar://broker:6650"} | {key: str(value) for key, value in keys.items()}
    return Config.load(overrides=overrides)
