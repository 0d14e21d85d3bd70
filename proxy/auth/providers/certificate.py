"""Clients with a TLS certificate, whose common name is the role (upstream: AuthenticationProviderTls).

Rule: the TLS handshake has verified the certificate; this module only reads the name. As in upstream, the role does not
expire with the certificate.
"""

from proxy.auth.failures import CredentialsRefused, Reason
from proxy.auth.identity import Authenticated
from proxy.auth.roles import is_role
from proxy.auth.sources import Watched


class CertificateProvider:
    """Reads the role from the verified certificate of the connection."""

    name = "AuthenticationProviderTls"
    methods = ("tls",)
    files: tuple[Watched[object], ...] = ()

    def user_to_check(self, data: bytes) -> str | None:
        """Return None: reading a name is cheap."""
        return None

    async def authenticate(self, data: bytes, certificate: bytes | None, network: str) -> Authenticated:
        """Return the common name without suspending; `data` is ignored. Raise CredentialsRefused."""
        if certificate is None:
            raise CredentialsRefused(Reason.INVALID_CERTS, "tls: the client has shown no certificate")
        return Authenticated(_common_name(certificate))

    async def close(self) -> None:
        """Do nothing: the provider holds nothing open."""


def _common_name(certificate: bytes) -> str:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        subject = x509.load_der_x509_certificate(certificate).subject
        names = [attribute.value for attribute in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    except ValueError:
        raise CredentialsRefused(Reason.INVALID_CERTS, "tls: the client's certificate cannot be read") from None
    # Upstream takes the first name in the order of RFC 2253, which is the last in the certificate.
    if not names or not is_role(names[-1]):
        raise CredentialsRefused(Reason.INVALID_CN, "tls: the certificate's common name is no role")
    return str(names[-1])
