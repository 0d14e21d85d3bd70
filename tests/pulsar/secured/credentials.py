"""Own all credentials of the secured broker and its clients: a CA, certificates, tokens, passwords; new in each run."""

import time
from pathlib import Path
from typing import Any, Final

import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
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
        self.public_key_file.write_bytes(der(rsa_key()))
        self.password_file = directory / "passwords"
        self.password_file.write_text("".join(f"{role}:{apr_md5_crypt.hash(password(role))}\n" for role in ROLES))
        for role in ROLES:
            # Java reads no certificate whose list of names is empty.
            self._write(role, self._ca.issue_cert(f"{role}.example", common_name=role))
        for server in ("broker", "server"):
            self._write(server, self._ca.issue_cert("127.0.0.1", "localhost"))

    def token(self, role: str, seconds: float | None = None) -> str:
        """Sign a token of a role that is valid for `seconds` (None: for ever)."""
        claims: dict[str, Any] = {"sub": role}
        if seconds is not None:
            claims["exp"] = int(time.time() + seconds)
        return signed(claims, "RS256", rsa_key()).decode()

    def certificate(self, name: str) -> tuple[str, str]:
        """Name the files of a certificate and its key."""
        return str(self.directory / f"{name}.pem"), str(self.directory / f"{name}.key")

    def _write(self, name: str, issued: trustme.LeafCert) -> None:
        certificate, key = map(Path, self.certificate(name))
        # The broker reads PKCS 8 only.
        private = load_pem_private_key(issued.private_key_pem.bytes(), None)
        key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
