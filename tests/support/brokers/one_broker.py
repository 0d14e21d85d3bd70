"""Stand in for the list of brokers where a test has one that is always up."""

from proxy.brokers.target import BrokerAddress


class OneBroker:
    """The only broker (`proxy.brokers.discovery.BrokerChoice`), and what was reported of it."""

    def __init__(self, broker: BrokerAddress) -> None:
        self.broker = broker
        self.reports: list[str] = []

    def home(self, key: str) -> BrokerAddress:
        return self.broker

    async def pick(self, key: str | None = None, avoid: BrokerAddress | None = None) -> BrokerAddress:
        return self.broker

    async def usable(self, broker: BrokerAddress, key: str) -> BrokerAddress:
        return broker

    def worked(self, broker: BrokerAddress) -> None:
        self.reports.append("worked")

    def failed(self, broker: BrokerAddress, error: str, *, answers_tcp: bool) -> None:
        self.reports.append(error)
