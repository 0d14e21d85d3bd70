"""Build the authentication parts of a proxy: of clients, of the proxy to brokers, and the display of principals.

The authenticator is built from the configuration at the start; a fault in its files or keys stops the start.
"""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from limiter.semaphore import AsyncSemaphore
from proxy.auth.client_authentication import CheckSettings, ClientAuthentication
from proxy.auth.credential_holders import CredentialHolders
from proxy.auth.failures import SettingFault
from proxy.auth.fairness_key import DisplayNames
from proxy.auth.kept_credentials import KEPT_OF, KeptCredentials
from proxy.auth.own.broker_credentials import BrokerCredentials
from proxy.auth.own.plugins import find_secrets, own_credentials
from proxy.auth.roles import ANONYMIZERS
from proxy.brokers.connect_frames import ConnectFrames, Versions
from proxy.config.config import Config
from proxy.config.core import Core
from proxy.core.errors import CredentialsUnavailable
from proxy.core.version import NAME, SERVER_VERSION

if TYPE_CHECKING:
    from proxy.auth.authenticator import Authenticator


@dataclass(frozen=True, slots=True)
class Identities:
    """The parts of authentication; `clients` is None if clients need not authenticate."""

    names: DisplayNames
    own: BrokerCredentials
    connect_frames: ConnectFrames
    clients: ClientAuthentication | None
    authenticator: "Authenticator | None"

    def start(self) -> None:
        """Start watching the files of keys and passwords."""
        if self.authenticator is not None:
            self.authenticator.start()

    async def close(self) -> None:
        """Stop all background tasks."""
        if self.authenticator is not None:
            await self.authenticator.close()
        await self.own.close()


def make_identities(core: Core, role_finder: "Authenticator | None" = None) -> Identities:
    """Return the authentication parts; raises SettingFault. A given `role_finder` replaces the configured providers."""
    config, loop, counters, log = core.config, core.loop, core.counters, core.log.of("auth")
    # The limit is set with that of large frames before CONNECTED (`proxy/clients/services.py`).
    memory = AsyncSemaphore(
        "kept credentials", 0, max_queue=0, timeout_seconds=0, clock=loop, share_by_key=True, kept_of=KEPT_OF
    )
    holders = CredentialHolders(KeptCredentials(memory))
    own = own_credentials(
        config.broker_client_authentication_plugin,
        config.broker_client_authentication_parameters,
        lambda error: counters.internal_error(error, "broker credentials"),
        core.loop_budget,
    )
    if (missing := missing_secret(config)) is not None:
        log.warning("brokers will refuse this proxy: it has no credentials", key=missing.key, detail=missing.problem)
    versions = Versions(proxy_version=NAME, server_version=SERVER_VERSION)
    authenticator, clients = None, None
    if config.authentication_enabled:
        if role_finder is None:
            role_finder = authenticator = _authenticator(core)
        clients = ClientAuthentication(loop, role_finder, CheckSettings.of(config), holders, log, time.time)
    return Identities(
        names=DisplayNames(ANONYMIZERS[config.authentication_role_logging_anonymizer]),
        own=own,
        connect_frames=ConnectFrames(loop, own, holders, versions, log, authentication=config.authentication_enabled),
        clients=clients,
        authenticator=authenticator,
    )


def missing_secret(config: Config) -> SettingFault | None:
    """Return the fault that the proxy's own credentials for brokers cannot be read, or None.

    `serve` starts anyway, with a warning: credentials are read for each connection, and may be written later.
    """
    key = Config.broker_client_authentication_parameters.name
    try:
        find_secrets(config.broker_client_authentication_plugin, config.broker_client_authentication_parameters)
    except CredentialsUnavailable as error:
        return SettingFault(key, str(error).removeprefix(f"{key}: "))
    return None


def _authenticator(core: Core) -> "Authenticator":
    # Only a proxy whose clients authenticate needs these.
    from proxy.auth.providers.registry import build_authenticator
    from proxy.auth.signature_turns import SignatureTurns

    turns = SignatureTurns(core.loop, core.loop_budget)
    return build_authenticator(core.config.authentication_providers, core, turns=turns)
