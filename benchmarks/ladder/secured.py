"""Owns how TLS is said to each server and to the load generator: the lines, words and options. Starts nothing."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from benchmarks.ladder.certificates import Certificates


@dataclass(frozen=True)
class Secured:
    """TLS from the clients to the server."""

    certificates: Certificates

    def proxy_lines(self, tls_port: int) -> list[str]:
        """Return the keys that our proxy and the Java proxy have in common."""
        return [
            f"servicePortTls={tls_port}",
            f"tlsCertificateFilePath={self.certificates.certificate}",
            f"tlsKeyFilePath={self.certificates.key}",
        ]

    def haproxy_bind(self) -> str:
        """Return the words behind `bind ADDRESS`."""
        return f" ssl crt {self.certificates.combined}"

    def broker_options(self) -> list[str]:
        """Return what makes the fake broker listen under TLS too."""
        return ["--certificate", str(self.certificates.certificate), "--key", str(self.certificates.key)]

    def load_options(self) -> list[str]:
        """Return what makes the load generator speak TLS."""
        return ["--trust", str(self.certificates.trust)]

    def context(self) -> ssl.SSLContext:
        """Return what the runner itself connects with."""
        return ssl.create_default_context(cafile=str(self.certificates.trust))
