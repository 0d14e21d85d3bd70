"""Tell whether revocation lists of one name are one authority's.

Imported only if there are several of a name: `cryptography` costs 13 MB.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

# What is no list or certificate for `cryptography`; some of it is one for sessions.
_UNREADABLE: Final = (
    ValueError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)


def name_of_two(lists: Sequence[bytes], roots: Sequence[bytes]) -> str | None:
    """Return a name that two authorities have in common, with a list each; None also for what cannot be read or told.

    Lists with scopes of their own (issuingDistributionPoint) count side by side.
    """
    firsts: dict[tuple[bytes, bytes], x509.CertificateRevocationList] = {}
    try:
        for each in map(x509.load_der_x509_crl, lists):
            name = each.issuer.public_bytes()
            first = firsts.setdefault((name, _scope(each)), each)
            if first is not each and _of_two_keys(first, each, _keys(name, roots)):
                return each.issuer.rfc4514_string()
    except _UNREADABLE:
        return None
    return None


def _of_two_keys(
    first: x509.CertificateRevocationList,
    other: x509.CertificateRevocationList,
    keys: "Iterator[CertificatePublicKeyTypes]",
) -> bool:
    """Return whether two keys have signed, seen by the trusted keys; if none of these has, by identifiers.

    A key's identifier may change its form, and need not be there.
    """
    signed = [(_signed(first, key), _signed(other, key)) for key in keys]
    if any(map(any, signed)):
        return (True, True) not in signed
    of_first, of_other = _identifier(first), _identifier(other)
    return of_first is not None and of_other is not None and of_first != of_other


def _keys(name: bytes, roots: Sequence[bytes]) -> "Iterator[CertificatePublicKeyTypes]":
    for root in roots:
        try:
            certificate = x509.load_der_x509_certificate(root)
            if certificate.subject.public_bytes() == name:
                yield certificate.public_key()
        except _UNREADABLE:
            continue


def _signed(what: x509.CertificateRevocationList, key: "CertificatePublicKeyTypes") -> bool:
    try:
        return what.is_signature_valid(key)  # type: ignore[arg-type]
    except (TypeError, ValueError, UnsupportedAlgorithm):
        return False


def _scope(of: x509.CertificateRevocationList) -> bytes:
    try:
        return of.extensions.get_extension_for_class(x509.IssuingDistributionPoint).value.public_bytes()
    except x509.ExtensionNotFound:
        return b""


def _identifier(of: x509.CertificateRevocationList) -> bytes | None:
    try:
        return of.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    except x509.ExtensionNotFound:
        return None
