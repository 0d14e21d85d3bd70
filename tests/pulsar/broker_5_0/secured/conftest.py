"""The fixtures of tests.pulsar.secured before a broker 5.0.1 at its defaults.

It wants to see the clients' own credentials (`authenticateOriginalAuthData`), and with TLS a certificate of the proxy.
"""

from dataclasses import replace

from tests.pulsar.release_5_0 import BROKER_5_0

# The same fixtures, before the broker of this package.
from tests.pulsar.secured.conftest import admin, credentials, namespace, secured_fixtures  # noqa: F401

broker, secured_proxy = secured_fixtures(replace(BROKER_5_0, keys={"tlsRequireTrustedClientCertOnConnect": "true"}))
