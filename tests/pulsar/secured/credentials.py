"""Own all credentials of the secured broker and its clients: a CA, certificates, tokens, passwords; new in each run."""

import time
from pathlib import Path
from typing import Any, Final

import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate
from passlib.hash import apr_md5_crypt

from tests.support.auth.tokens import der, rsa_key, signed

ROLES: Final = ("alice", "bob", "proxy", "admin")


def password(role: str) -> str:
    """Give the password of a role."""
    return f"{role}'s password"


class Credentials:
    """Hold files in `directory`; the keys that sign certificates are known here alone."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ca = trustme.CA()
        self.ca_file = directory / "ca.pem"
        self._ca.cert_pem.write_to_path(str(self.ca_file))
        self.public_key_file = directory / "tokens.der"
        self.write_public_key()
        self.password_file = directory / "passwords"
        self.write_passwords(ROLES)
        for role in ROLES:
            # Java reads no certificate whose list of names is empty.
            self._write(role, self._ca.issue_cert(f"{role}.example", common_name=role))
        self._write("stranger", trustme.CA().issue_cert("alice.example", common_name="alice"))
        self.write_server_certificate("broker")
        self.write_server_certificate("server")

    # --- tokens -----------------------------------------------------------------------------------

    def token(self, role: str, seconds: float | None = None, *, foreign: bool = False) -> str:
        """Sign a token of a role that is valid for `seconds` (None: for ever), or with a key nobody trusts."""
        claims: dict[str, Any] = {"sub": role}
        if seconds is not None:
            claims["exp"] = int(time.time() + seconds)
        return signed(claims, "RS256", rsa_key(int(foreign))).decode()

    def write_public_key(self, *, foreign: bool = False) -> None:
        """Write the key by which tokens are trusted; `foreign` revokes all that were signed before."""
        _replace(self.public_key_file, der(rsa_key(int(foreign))))

    # --- passwords --------------------------------------------------------------------------------

    def write_passwords(self, roles: tuple[str, ...]) -> None:
        """Write a file with the passwords of these roles only."""
        lines = [f"{role}:{apr_md5_crypt.hash(password(role))}\n" for role in roles]
        _replace(self.password_file, "".join(lines).encode())

    # --- certificates -----------------------------------------------------------------------------

    def certificate(self, name: str) -> tuple[str, str]:
        """Name the files of a certificate and its key."""
        return str(self.directory / f"{name}.pem"), str(self.directory / f"{name}.key")

    def write_server_certificate(self, name: str) -> int:
        """Write a new certificate for this host and give its serial number."""
        return self._write(name, self._ca.issue_cert("127.0.0.1", "localhost"))

    def _write(self, name: str, issued: trustme.LeafCert) -> int:
        certificate, key = map(Path, self.certificate(name))
        # The broker reads PKCS 8 only.
        private = load_pem_private_key(issued.private_key_pem.bytes(), None)
        _replace(key, private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        _replace(certificate, b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        return load_pem_x509_certificate(issued.cert_chain_pems[0].bytes()).serial_number


def _replace(path: Path, content: bytes) -> None:
    # Whoever reads meanwhile reads the old one or the new one.
    fresh = path.with_suffix(".new")
    fresh.write_bytes(content)
    fresh.replace(path)
