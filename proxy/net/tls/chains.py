"""Order the certificates of a file: rustls and the peers need that of the key first, and then those above it."""

from collections.abc import Sequence

from proxy.net.tls.expiry import issuer_and_subject
from proxy.net.tls.session import new_config


def in_order(found: Sequence[bytes], key: bytes) -> list[bytes]:
    """Return the certificate of the key, those above it, and the rest; raises ValueError for what is no certificate."""
    chain = above(next((each for each in found if _fits(each, key)), found[0]), found)
    return chain + [each for each in found if each not in chain]


def above(leaf: bytes, others: Sequence[bytes]) -> list[bytes]:
    """Return a certificate, its issuer, the issuer's, and so on, each once; raises ValueError."""
    subjects = {each: issuer_and_subject(each)[1] for each in others}
    chain = [leaf]
    for each in chain:
        issuer, _ = issuer_and_subject(each)
        chain += [other for other, subject in subjects.items() if subject == issuer and other not in chain]
    return chain


def _fits(certificate: bytes, key: bytes) -> bool:
    """Return whether a session can be made of both."""
    try:
        new_config(
            server_side=True, chain=[certificate], key=key, roots=[], lists=[], verify=0, check_name=False, versions=[],
            suites=[], resumes=False,
        )  # fmt: skip
    except ValueError:
        return False
    return True
