"""Owns how TLS is said to each server and to the load generator: the lines, words and options. Starts nothing."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from benchmarks.ladder.certificates import Certificates


@dataclass(frozen=True)
class Secured:
    """TLS from the clients to the server and, if asked for, from there to the broker."""

    certificates: Certificates
    towards_broker: bool = False

    def proxy_lines(self, tls_port: int, broker_tls_port: int) -> list[str]:
        """Return the keys that our proxy and the Java proxy have in common."""
        files = self.certificates
        lines = [
            f"servicePortTls={tls_port}",
            f"tlsCertificateFilePath={files.certificate}",
            f"tlsKeyFilePath={files.key}",
        ]
        if self.towards_broker:
            lines += [
                f"brokerServiceURLTLS=pulsar+ssl://127.0.0.1:{broker_tls_port}",
                f"brokerWebServiceURLTLS=https://127.0.0.1:{broker_tls_port}",
                "tlsEnabledWithBroker=true",
                f"brokerClientTrustCertsFilePath={files.trust}",
                "tlsHostnameVerificationEnabled=true",
            ]
        return lines

    def haproxy_bind(self) -> str:
        """Return the words behind `bind ADDRESS`."""
        return f" ssl crt {self.certificates.combined}"

    def haproxy_server(self) -> str:
        """Return the words behind `server NAME ADDRESS`; HAProxy compares names, not addresses."""
        if not self.towards_broker:
            return ""
        return f" ssl verify required verifyhost localhost ca-file {self.certificates.trust}"

    def broker_options(self) -> list[str]:
        """Return what makes the fake broker listen under TLS too."""
        return ["--certificate", str(self.certificates.certificate), "--key", str(self.certificates.key)]

    def load_options(self) -> list[str]:
        """Return what makes the load generator speak TLS."""
        return ["--trust", str(self.certificates.trust)]

    def context(self) -> ssl.SSLContext:
        """Return what the runner itself connects with."""
        return ssl.create_default_context(cafile=str(self.certificates.trust))
