"""Certificate revocation lists of a test's authorities."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.auth.tls import authority


def revocation_list(
    of: str = "first",
    revoked: Iterable[trustme.LeafCert] = (),
    valid: timedelta = timedelta(days=1),
    numbered: bool = True,
    age: timedelta = timedelta(days=7),
    signed_by: str = "",
    extensions: Iterable[x509.ExtensionType] = (),
) -> bytes:
    """Return the list of an authority, as PEM, that names `revoked`; with `signed_by` by the key of another one."""
    certificate = x509.load_pem_x509_certificate(authority(of).cert_pem.bytes())
    key = serialization.load_pem_private_key(authority(signed_by or of).private_key_pem.bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    now = datetime.now(UTC)
    builder = x509.CertificateRevocationListBuilder(certificate.subject, now - age, now + valid)
    if numbered:
        builder = builder.add_extension(x509.CRLNumber(1), critical=False)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=isinstance(extension, x509.IssuingDistributionPoint))
    for leaf in revoked:
        serial = x509.load_pem_x509_certificate(leaf.cert_chain_pems[0].bytes()).serial_number
        entry = x509.RevokedCertificateBuilder(serial, now - timedelta(days=7)).build()
        builder = builder.add_revoked_certificate(entry)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
