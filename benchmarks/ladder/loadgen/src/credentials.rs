//! What the two ends of TLS are made from, PEM files, and what they agree on: TLS 1.3 with one cipher suite, whichever
//! server is asked, because rows must not differ by that. No session is resumed: each handshake is a whole one.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{ring, CryptoProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// What clients trust.
#[derive(Clone)]
pub struct Trust(Arc<ClientConfig>);

/// What a server shows.
pub struct Identity(Arc<ServerConfig>);

fn provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    provider.cipher_suites = vec![ring::cipher_suite::TLS13_AES_128_GCM_SHA256];
    Arc::new(provider)
}

impl Trust {
    pub fn from_file(path: &str) -> Result<Trust, String> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|error| format!("{path}: {error}"))?;
        }
        let config = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
        let mut config =
            config.map_err(|error| error.to_string())?.with_root_certificates(roots).with_no_client_auth();
        config.resumption = Resumption::disabled();
        Ok(Trust(Arc::new(config)))
    }

    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0)
    }
}

impl Identity {
    pub fn from_files(certificate: &str, key: &str) -> Result<Identity, String> {
        let private = PrivateKeyDer::from_pem_file(key).map_err(|error| format!("{key}: {error}"))?;
        let config = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
        let config = config.map_err(|error| error.to_string())?.with_no_client_auth();
        let mut config = config
            .with_single_cert(certificates(certificate)?, private)
            .map_err(|error| format!("{certificate}: {error}"))?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Identity(Arc::new(config)))
    }

    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0)
    }
}

fn certificates(path: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    all.map_err(|error| format!("{path}: {error}"))
}
