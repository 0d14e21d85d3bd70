"""Placeholder until fair shares are merged."""

from collections.abc import Hashable


class Claim:
    """Name who is charged."""

    def __init__(self, key: Hashable) -> None:
        self.key = key

    def recharge(self, key: Hashable) -> None:
        """Charge somebody else."""
        self.key = key
