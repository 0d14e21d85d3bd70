"""What is kept of clients' requests for operators: who asks for most, who was refused, and events."""

from proxy.auth.fairness_key import DisplayNames
from proxy.config.core import Core
from proxy.telemetry.events.recorder import Recorder
from proxy.telemetry.refusals import RefusalLog
from proxy.telemetry.tenants import TENANTS, TenantTracker
from proxy.telemetry.usage import UsageTracker


class Reports:
    """The reports of one proxy; `names` shows principals as the log does, `recorder` is None without an event log."""

    def __init__(self, core: Core, names: DisplayNames, recorder: Recorder | None = None) -> None:
        self.names = names
        self.recorder = recorder
        self.tenants = TenantTracker()
        core.counters.derive(TENANTS, lambda: self.tenants)
        self.usage = UsageTracker(core.loop, names=names, tenants=self.tenants)
        self.refusals = RefusalLog(core.log.of("requests"), core.loop, names=names)
