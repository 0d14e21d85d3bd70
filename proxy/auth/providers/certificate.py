"""Clients that prove themselves with a TLS certificate: its common name is the role (AuthenticationProviderTls).

Rule: the certificate given here was verified by the TLS handshake; this module only reads the name. It never expires a
session, as upstream's does not.
"""

from proxy.auth.failures import CredentialsRefused, Reason
from proxy.auth.identity import Authenticated, is_role
from proxy.auth.sources import Watched


class CertificateProvider:
    """Take the role from the verified certificate of the connection."""

    name = "AuthenticationProviderTls"
    methods = ("tls",)
    files: tuple[Watched[object], ...] = ()

    def needs_turn(self, data: bytes) -> bool:
        """Give False: reading a name is no work."""
        return False

    async def authenticate(self, data: bytes, certificate: bytes | None) -> Authenticated:
        """Find the common name without ever suspending; `data` is not looked at. Raises CredentialsRefused."""
        if certificate is None:
            raise CredentialsRefused(Reason.INVALID_CERTS, "tls: the client has shown no certificate")
        return Authenticated(_common_name(certificate))

    async def close(self) -> None:
        """Hold nothing that would need it."""


def _common_name(certificate: bytes) -> str:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        subject = x509.load_der_x509_certificate(certificate).subject
        names = [attribute.value for attribute in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    except ValueError:
        raise CredentialsRefused(Reason.INVALID_CERTS, "tls: the client's certificate cannot be read") from None
    # Of several the last in the certificate: upstream takes the first of RFC 2253's order, which is reversed.
    if not names or not is_role(names[-1]):
        raise CredentialsRefused(Reason.INVALID_CN, "tls: the certificate's common name is no role")
    return str(names[-1])
