"""Read PKCS#12 stores, as Java and OpenSSL write them.

Imported only if a store is used: `cryptography` costs 13 MB.
"""

import shlex
from dataclasses import dataclass, field
from typing import ClassVar, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates, load_pkcs12
from cryptography.x509 import InvalidVersion

from proxy.net.tls.chains import above
from proxy.net.tls.pem import TlsFile
from proxy.net.tls.suites import BadTlsSetting

# The first bytes of Java's own stores, JKS and JCEKS.
_OF_JAVA: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
# What each key begins with: its kind, with a password or without (RFC 7292, 4.2). These parts are not encrypted.
_KEY_BAGS: Final = (bytes.fromhex("060b2a864886f70d010c0a0102"), bytes.fromhex("060b2a864886f70d010c0a0101"))


@dataclass(frozen=True, slots=True)
class StoreFile(TlsFile):
    """A store, the type that the configuration says it has, and its password. All methods raise BadTlsSetting."""

    type: str
    password: str = field(repr=False)
    expected: ClassVar[str] = "a PKCS12 store"

    def certificates(self) -> list[bytes]:
        """Return the certificate of the first key, and those above it."""
        found = self._opened(self.read())
        if found.cert is None:
            raise self.fault("a PKCS12 store with a private key and its certificate")
        return above(found.cert.certificate.public_bytes(Encoding.DER), _others(found))

    def authorities(self) -> list[bytes]:
        """Return the certificates that are trusted."""
        found = self._opened(self.read())
        if found.key is not None:
            # Java trusts the key's own certificate then, and not those above it; both look the same here.
            raise self.fault("a PKCS12 store with trusted certificates, and no private key")
        return _others(found)

    def private_key(self) -> tuple[bytes, int]:
        """Return the first key, and how many there are."""
        store = self.read()
        found = self._opened(store)
        if found.key is None:
            raise self.fault("a PKCS12 store with a private key and its certificate")
        key = found.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        return key, sum(map(store.count, _KEY_BAGS))

    def _opened(self, store: bytes) -> PKCS12KeyAndCertificates:
        path = shlex.quote(self.path)
        converts = (
            f"`keytool -importkeystore -srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12` converts a "
            "store of another type"
        )
        if self.type.upper() != "PKCS12":
            raise BadTlsSetting(f"{self.key}Type", repr(self.type), f"PKCS12; {converts}")
        if store.startswith(_OF_JAVA):
            raise self.fault(f"a PKCS12 store, not one of JKS; {converts}")
        try:
            return load_pkcs12(store, self.password.encode())
        except (ValueError, TypeError, UnsupportedAlgorithm, InvalidVersion) as error:
            if "password" in str(error):
                got = f"one that does not open {self.path!r}"
                raise BadTlsSetting(f"{self.key}Password", got, "the password of that store") from None
            raise self.fault(f"a PKCS12 store that is whole: {error}") from error


def _others(store: PKCS12KeyAndCertificates) -> list[bytes]:
    return [each.certificate.public_bytes(Encoding.DER) for each in store.additional_certs]
