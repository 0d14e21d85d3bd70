//! A session of TLS that owns no socket: it gets bytes and gives bytes, so the event loop begins it, and a thread of
//! the engine may go on with it. The only file that names a type of rustls.
//!
//! Rules of rustls' interface without buffers, each of which a peer could have made a panic of: it gets record by
//! record, so that we know which of the kept bytes it has looked at (a part of a handshake message, or an empty one); a
//! write gets these and no others; after an error only the alert is drawn out; after that nothing is called any more.

use std::cell::RefCell;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{UnbufferedClientConnection, WebPkiServerVerifier};
use rustls::crypto::{
    aws_lc_rs, verify_tls12_signature, verify_tls13_signature, verify_tls13_signature_with_raw_key, CryptoProvider,
    WebPkiSupportedAlgorithms,
};
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{
    NoServerSessionStorage, ServerSessionMemoryCache, UnbufferedServerConnection, WebPkiClientVerifier,
};
use rustls::unbuffered::{ConnectionState, EncryptError, UnbufferedStatus};
use rustls::{
    CertificateError, CipherSuiteCommon, ClientConfig, CommonState, DigitallySignedStruct, DistinguishedName, Error,
    InvalidMessage, OtherError, PeerIncompatible, PeerMisbehaved, ProtocolVersion, RootCertStore, ServerConfig,
    SignatureScheme, SupportedCipherSuite, SupportedProtocolVersion, Tls12CipherSuite,
};

/// What sealing adds to a record at most: head, explicit nonce, type and tag.
const ENVELOPE: usize = 64;
/// No record has more plain bytes.
const RECORD_PLAIN: usize = 16 * 1024;
/// Sealed bytes that a write makes room for at first, for what the session adds by itself.
const SPARE: usize = 256;
/// Certificates beside a peer's own: no chain has more than 7, some files have more. A session keeps them, with some
/// 100 bytes for each beside its own.
const MOST_OTHERS: usize = 31;
/// Names of authorities that clients are told, so that they choose a certificate. Java takes no message above 32 KiB,
/// others none above 64; without names, a client shows what it has.
const MOST_NAMES: usize = 24 * 1024;
/// Sessions of clients without tickets that are kept to be resumed.
const KEPT_SESSIONS: usize = 1024;
/// Limit of sealed bytes that no data has paid for: an incomplete record, and a broker's session tickets.
const NO_DATA: u64 = (RECORD_PLAIN + 5 + 256 + 16 * 1024) as u64;
/// Limit of the sealed bytes of a message behind the handshake that is not whole: tickets and updates of keys come in a
/// record each. With a part of a record, and a small read behind it, that is what the memory budget counts as unread.
const MOST_IN_PIECES: usize = 4 * 1024;
/// Data pay for twice their bytes, and each record with data for so many more, or for all of its own: padding in TLS 1.3
/// hides how long a message is. What surrounds data takes 85 bytes at most else.
const RECORD_PAYS: u64 = 256;

/// Why a session failed: a kind that the operator's metrics know, and a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub kind: Kind,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Certificate,
    VersionOrCipher,
    PeerRefused,
    NotTls,
    Idle,
    Other,
}

/// What a configuration asks of the certificates of peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    Nothing,
    Optional,
    Required,
}

/// The settings of one side, in DER.
pub struct Settings {
    pub chain: Vec<Vec<u8>>,
    pub key: Vec<u8>,
    pub roots: Vec<Vec<u8>>,
    pub lists: Vec<Vec<u8>>,
    pub verify: Verify,
    pub check_name: bool,
    pub versions: Vec<u16>,
    pub suites: Vec<u16>,
    /// Whether clients may resume their sessions.
    pub resumes: bool,
}

/// Which setting cannot be used, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable {
    pub setting: &'static str,
    pub text: String,
}

fn unusable(setting: &'static str, error: impl ToString) -> Unusable {
    Unusable { setting, text: error.to_string() }
}

#[derive(Clone)]
pub enum Config {
    Server(Arc<ServerConfig>),
    Client(Arc<ClientConfig>),
}

impl Config {
    /// Settings of accepted connections.
    pub fn server(settings: &Settings) -> Result<Config, Unusable> {
        let provider = provider(&settings.suites)?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions(&settings.versions))
            .map_err(|error| unusable("versions", error))?;
        let builder = match settings.verify {
            Verify::Nothing => builder.with_no_client_auth(),
            _ => builder.with_client_cert_verifier(client_verifier(settings, &provider)?),
        };
        let mut config = builder
            .with_single_cert(chain(settings), key(settings)?)
            .map_err(|error| unusable("certificate", error))?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        if settings.resumes {
            config.session_storage = ServerSessionMemoryCache::new(KEPT_SESSIONS);
            config.ticketer = aws_lc_rs::Ticketer::new().map_err(|error| unusable("certificate", error))?;
            config.send_tls13_tickets = 1;
        }
        Ok(Config::Server(Arc::new(config)))
    }

    /// Settings of connections that this side makes.
    pub fn client(settings: &Settings) -> Result<Config, Unusable> {
        let provider = provider(&settings.suites)?;
        let verifier = ServerVerifier::new(settings, &provider)?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions(&settings.versions))
            .map_err(|error| unusable("versions", error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = if settings.chain.is_empty() {
            builder.with_no_client_auth()
        } else {
            builder
                .with_client_auth_cert(chain(settings), key(settings)?)
                .map_err(|error| unusable("certificate", error))?
        };
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Config::Client(Arc::new(config)))
    }
}

/// The suites, those of TLS 1.2 without a limit of records: rustls would end a connection behind 2^24 of AES-GCM, half an
/// hour of a busy consumer, where OpenSSL, Java and Go go on. TLS 1.3 changes its keys then.
fn lasting() -> Vec<SupportedCipherSuite> {
    static SUITES: OnceLock<Vec<SupportedCipherSuite>> = OnceLock::new();
    let unlimited = |each: &SupportedCipherSuite| match each {
        SupportedCipherSuite::Tls12(suite) => {
            let common = CipherSuiteCommon { confidentiality_limit: u64::MAX, ..suite.common };
            SupportedCipherSuite::Tls12(Box::leak(Box::new(Tls12CipherSuite { common, ..**suite })))
        }
        other => *other,
    };
    SUITES.get_or_init(|| aws_lc_rs::DEFAULT_CIPHER_SUITES.iter().map(unlimited).collect()).clone()
}

fn provider(suites: &[u16]) -> Result<Arc<CryptoProvider>, Unusable> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites = lasting();
    if !suites.is_empty() {
        provider.cipher_suites.retain(|each| suites.contains(&u16::from(each.suite())));
        if provider.cipher_suites.is_empty() {
            return Err(unusable("suites", "none of them is known"));
        }
    }
    Ok(Arc::new(provider))
}

/// The numbers of the suites that can be chosen, and whether each is one of TLS 1.3.
pub fn suites() -> Vec<(String, u16)> {
    aws_lc_rs::ALL_CIPHER_SUITES
        .iter()
        .map(|each| (each.suite().as_str().unwrap_or_default().to_owned(), u16::from(each.suite())))
        .collect()
}

fn versions(wanted: &[u16]) -> Vec<&'static SupportedProtocolVersion> {
    rustls::ALL_VERSIONS
        .iter()
        .copied()
        .filter(|each| wanted.is_empty() || wanted.contains(&u16::from(each.version)))
        .collect()
}

fn chain(settings: &Settings) -> Vec<CertificateDer<'static>> {
    settings.chain.iter().map(|each| CertificateDer::from(each.clone())).collect()
}

fn key(settings: &Settings) -> Result<PrivateKeyDer<'static>, Unusable> {
    PrivateKeyDer::try_from(settings.key.clone()).map_err(|error| unusable("key", error))
}

/// Certificates that are no trust anchors for rustls: they match by their bytes (`pinned`).
fn anchors(settings: &Settings) -> Result<RootCertStore, Unusable> {
    let mut store = RootCertStore::empty();
    let (added, _) = store.add_parsable_certificates(settings.roots.iter().map(|each| each.as_slice().into()));
    if added == 0 {
        return Err(unusable("trust", "no certificate that can be read"));
    }
    Ok(store)
}

fn lists(settings: &Settings) -> Vec<CertificateRevocationListDer<'static>> {
    settings.lists.iter().map(|each| CertificateRevocationListDer::from(each.clone())).collect()
}

fn client_verifier(
    settings: &Settings,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, Unusable> {
    let anchors = Arc::new(anchors(settings)?);
    let names: usize = anchors.roots.iter().map(|each| each.subject.len()).sum();
    let mut builder = WebPkiClientVerifier::builder_with_provider(anchors, provider.clone())
        .with_crls(lists(settings))
        .enforce_revocation_expiration();
    if names > MOST_NAMES {
        builder = builder.clear_root_hint_subjects();
    }
    if settings.verify == Verify::Optional {
        builder = builder.allow_unauthenticated();
    }
    let inner = builder.build().map_err(|error| unusable("lists", error))?;
    Ok(Arc::new(ClientVerifier { inner, trusted: Trusted::new(settings, provider) }))
}

/// Certificates of clients: those that an authority has signed, and those that stand in the file themselves, as with
/// Java's and OpenSSL's partial chains.
#[derive(Debug)]
struct ClientVerifier {
    inner: Arc<dyn ClientCertVerifier>,
    trusted: Trusted,
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        few(intermediates)?;
        match self.inner.verify_client_cert(end_entity, intermediates, now) {
            Err(error) if self.trusted.pins(end_entity, &error) => {
                fields::check_times(end_entity, now)?;
                Ok(ClientCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trusted.signed_in_tls12(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trusted.signed_in_tls13(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Refuses to keep what no chain needs: thousands of empty certificates cost 300 KB.
fn few(intermediates: &[CertificateDer<'_>]) -> Result<(), Error> {
    if intermediates.len() > MOST_OTHERS {
        let text = format!("got {} certificates beside it, expected at most {MOST_OTHERS}", intermediates.len());
        let why: Box<dyn std::error::Error + Send + Sync> = text.into();
        return Err(CertificateError::Other(OtherError(why.into())).into());
    }
    Ok(())
}

/// The certificates of the trust file, and the ways to sign that count.
#[derive(Debug)]
struct Trusted {
    certificates: Vec<Vec<u8>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Trusted {
    fn new(settings: &Settings, provider: &CryptoProvider) -> Trusted {
        Trusted { certificates: settings.roots.clone(), algorithms: provider.signature_verification_algorithms }
    }

    /// Whether a certificate is refused only because nobody else has signed it, and is trusted by name.
    fn pins(&self, certificate: &CertificateDer<'_>, error: &Error) -> bool {
        let unsigned =
            matches!(error, Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::Other(_)));
        unsigned && self.certificates.iter().any(|each| each.as_slice() == certificate.as_ref())
    }

    /// Checks that the owner of a certificate takes part in the handshake. rustls reads none of version 1, but its key.
    fn signed_in_tls13(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match verify_tls13_signature(message, cert, dss, &self.algorithms) {
            Err(error) if self.pins(cert, &error) => {
                let key = fields::key(cert).ok_or(CertificateError::BadEncoding)?;
                verify_tls13_signature_with_raw_key(message, &SubjectPublicKeyInfoDer::from(key), dss, &self.algorithms)
            }
            other => other,
        }
    }

    /// The same; rustls does not read keys here, either.
    fn signed_in_tls12(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match verify_tls12_signature(message, cert, dss, &self.algorithms) {
            Err(error) if self.pins(cert, &error) => {
                let (kind, key) = fields::key(cert).and_then(fields::parts).ok_or(CertificateError::BadEncoding)?;
                let usable = self.algorithms.mapping.iter().filter(|(scheme, _)| *scheme == dss.scheme);
                usable
                    .flat_map(|(_, algorithms)| algorithms.iter())
                    .filter(|each| each.public_key_alg_id().as_ref() == kind)
                    .find_map(|each| each.verify_signature(key, message, dss.signature()).ok())
                    .map(|()| HandshakeSignatureValid::assertion())
                    .ok_or(CertificateError::BadSignature.into())
            }
            other => other,
        }
    }
}

/// Certificates of brokers.
#[derive(Debug)]
struct ServerVerifier {
    /// None: nobody checks.
    inner: Option<Arc<WebPkiServerVerifier>>,
    check_name: bool,
    trusted: Trusted,
}

impl ServerVerifier {
    fn new(settings: &Settings, provider: &Arc<CryptoProvider>) -> Result<ServerVerifier, Unusable> {
        let inner = match settings.verify {
            Verify::Nothing => None,
            _ => {
                let anchors = Arc::new(anchors(settings)?);
                let builder = WebPkiServerVerifier::builder_with_provider(anchors, provider.clone())
                    .with_crls(lists(settings))
                    .enforce_revocation_expiration();
                Some(builder.build().map_err(|error| unusable("lists", error))?)
            }
        };
        Ok(ServerVerifier { inner, check_name: settings.check_name, trusted: Trusted::new(settings, provider) })
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        few(intermediates)?;
        let Some(inner) = &self.inner else {
            return Ok(ServerCertVerified::assertion());
        };
        match inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is what is checked last.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.check_name => Ok(ServerCertVerified::assertion()),
            Err(error) if self.trusted.pins(end_entity, &error) => {
                fields::check_times(end_entity, now)?;
                if self.check_name {
                    let parsed = rustls::server::ParsedCertificate::try_from(end_entity)?;
                    rustls::client::verify_server_name(&parsed, server_name)?;
                }
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trusted.signed_in_tls12(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trusted.signed_in_tls13(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.trusted.algorithms.supported_schemes()
    }
}

/// The times and the key of a certificate, which webpki does not tell (RFC 5280, 4.1).
mod fields {
    use super::{CertificateDer, CertificateError, Error, UnixTime};

    const SEQUENCE: u8 = 0x30;
    const VERSION: u8 = 0xa0;
    const UTC_TIME: u8 = 0x17;

    /// Refuses a certificate outside of its times.
    pub fn check_times(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
        let bad = Error::InvalidCertificate(CertificateError::BadEncoding);
        let (not_before, not_after) = times(certificate).ok_or(bad)?;
        let now = now.as_secs() as i64;
        if now < not_before {
            return Err(Error::InvalidCertificate(CertificateError::NotValidYet));
        }
        if now > not_after {
            return Err(Error::InvalidCertificate(CertificateError::Expired));
        }
        Ok(())
    }

    fn times(certificate: &[u8]) -> Option<(i64, i64)> {
        let (_, validity, _) = element(validity_on(certificate)?)?;
        let (first_tag, first, after) = element(validity)?;
        let (second_tag, second, _) = element(after)?;
        Some((seconds(first_tag, first)?, seconds(second_tag, second)?))
    }

    /// Its SubjectPublicKeyInfo.
    pub fn key<'a>(certificate: &'a CertificateDer<'_>) -> Option<&'a [u8]> {
        let subject = element(validity_on(certificate)?)?.2;
        let key = element(subject)?.2;
        key.get(..key.len() - element(key)?.2.len())
    }

    /// The algorithm and the bits of a SubjectPublicKeyInfo.
    pub fn parts(key: &[u8]) -> Option<(&[u8], &[u8])> {
        let (_, algorithm, rest) = element(element(key)?.1)?;
        Some((algorithm, element(rest)?.1.get(1..)?))
    }

    /// What follows the issuer.
    fn validity_on(certificate: &[u8]) -> Option<&[u8]> {
        let (_, outer, _) = element(certificate)?;
        let (tag, mut rest, _) = element(outer)?;
        if tag != SEQUENCE {
            return None;
        }
        if rest.first() == Some(&VERSION) {
            rest = element(rest)?.2;
        }
        for _ in 0..3 {
            rest = element(rest)?.2; // serial number, signature, issuer
        }
        Some(rest)
    }

    /// Tag, contents, and what follows.
    fn element(data: &[u8]) -> Option<(u8, &[u8], &[u8])> {
        let (&tag, rest) = data.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let mut length = usize::from(first);
        if first >= 0x80 {
            let bytes = usize::from(first & 0x7f);
            if bytes > 4 || rest.len() < bytes {
                return None;
            }
            length = rest[..bytes].iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte));
            rest = &rest[bytes..];
        }
        (rest.len() >= length).then(|| (tag, &rest[..length], &rest[length..]))
    }

    fn seconds(tag: u8, text: &[u8]) -> Option<i64> {
        let digits =
            |range: std::ops::Range<usize>| -> Option<i64> { std::str::from_utf8(text.get(range)?).ok()?.parse().ok() };
        let (year, at) = if tag == UTC_TIME {
            let short = digits(0..2)?;
            (if short >= 50 { 1900 + short } else { 2000 + short }, 2)
        } else {
            (digits(0..4)?, 4)
        };
        let (month, day) = (digits(at..at + 2)?, digits(at + 2..at + 4)?);
        let (hour, minute) = (digits(at + 4..at + 6)?, digits(at + 6..at + 8)?);
        let second = digits(at + 8..at + 10)?;
        // Days from the civil calendar, Howard Hinnant's formula with March as the first month.
        let shifted = if month <= 2 { year - 1 } else { year };
        let era = shifted.div_euclid(400);
        let of_era = shifted - era * 400;
        let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
        Some(days * 86_400 + hour * 3600 + minute * 60 + second)
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn the_times_of_both_kinds_are_read() {
            assert_eq!(super::seconds(0x17, b"700101000000Z"), Some(0));
            assert_eq!(super::seconds(0x17, b"491231235959Z"), Some(2_524_607_999));
            assert_eq!(super::seconds(0x18, b"20000229120000Z"), Some(951_825_600));
            assert_eq!(super::seconds(0x18, b"2000"), None);
        }
    }
}

enum Conn {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

impl Conn {
    fn peer(&self) -> &'static str {
        match self {
            Conn::Server(_) => "client",
            Conn::Client(_) => "broker",
        }
    }

    fn common(&self) -> &CommonState {
        match self {
            Conn::Server(server) => server,
            Conn::Client(client) => client,
        }
    }
}

/// What came of one call.
enum Next {
    /// There may be more to do with the bytes that are there.
    Again,
    /// No more without more bytes.
    Wait,
    /// The peer has said that it sends no more.
    PeerClosed,
}

/// Where opened bytes go: first where the reader wants them, then where they wait.
struct Room<'a> {
    wanted: &'a mut [u8],
    filled: usize,
    rest: &'a mut Vec<u8>,
    /// The sealed bytes of the record that was given last.
    record: u64,
    /// What the data that were opened pay for.
    paid: u64,
}

impl Room<'_> {
    fn put(&mut self, payload: &[u8]) {
        self.paid += self.record.max(2 * payload.len() as u64 + RECORD_PAYS);
        let now = payload.len().min(self.wanted.len() - self.filled);
        self.wanted[self.filled..self.filled + now].copy_from_slice(&payload[..now]);
        self.filled += now;
        self.rest.extend_from_slice(&payload[now..]);
    }

    /// Whether no further record may be opened.
    fn is_full(&self) -> bool {
        !self.rest.is_empty() || (self.filled == self.wanted.len() && self.filled > 0)
    }
}

pub struct Session {
    conn: Conn,
    /// Records that came and are not opened, or the beginning of one.
    sealed: Vec<u8>,
    /// The kept bytes begin with so many in whole records that were looked at.
    begun: usize,
    /// Plain bytes that the last reader had no room for: less than a record.
    opened: Vec<u8>,
    /// Records that the session has made by itself, in their order before all that is sealed later.
    own: Vec<u8>,
    peer_closed: bool,
    closed: bool,
    failure: Option<Failure>,
    /// Sealed bytes behind the handshake that brought no data, less what data have paid for; never negative.
    idle: u64,
}

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Session {
    /// A session of the settings; towards a broker `name` is its host. A client's first words are in `take` at once.
    pub fn new(config: &Config, name: &str) -> Result<Session, Failure> {
        let conn = match config {
            Config::Server(config) => UnbufferedServerConnection::new(config.clone())
                .map(Conn::Server)
                .map_err(|error| describe(&error, "client"))?,
            Config::Client(config) => UnbufferedClientConnection::new(config.clone(), host(name)?)
                .map(Conn::Client)
                .map_err(|error| describe(&error, "broker"))?,
        };
        let is_client = matches!(conn, Conn::Client(_));
        let mut session = Session {
            conn,
            sealed: Vec::new(),
            begun: 0,
            opened: Vec::new(),
            own: Vec::new(),
            peer_closed: false,
            closed: false,
            failure: None,
            idle: 0,
        };
        if is_client {
            session.receive(&[], &mut []);
        }
        match session.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(session),
        }
    }

    pub fn is_handshaking(&self) -> bool {
        self.conn.common().is_handshaking()
    }

    /// Whether the peer has sent close_notify.
    pub fn peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// Whether `receive` has more to do without fresh bytes: to hand out plain ones, or to look at records.
    pub fn has_more(&self) -> bool {
        !self.opened.is_empty() || (self.failure.is_none() && whole_record(&self.sealed[self.begun..]).is_some())
    }

    /// Bytes that are kept: what came and was not handed out.
    pub fn kept(&self) -> usize {
        self.sealed.len() + self.opened.len()
    }

    /// Why the session is over, if it has failed.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    pub fn has_own(&self) -> bool {
        !self.own.is_empty()
    }

    /// The records that the session has made by itself since the last call.
    pub fn take_own(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.own)
    }

    /// The certificates of the peer, its own first, in DER.
    pub fn peer_certificates(&self) -> Vec<Vec<u8>> {
        let shown = self.conn.common().peer_certificates().unwrap_or_default();
        shown.iter().map(|each| each.to_vec()).collect()
    }

    pub fn version(&self) -> &'static str {
        match self.conn.common().protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            _ => "",
        }
    }

    pub fn suite(&self) -> String {
        let suite = self.conn.common().negotiated_cipher_suite();
        suite.and_then(|suite| suite.suite().as_str()).unwrap_or_default().to_owned()
    }

    /// Keeps bytes of the peer for a later `receive`; those behind its end, or a failure, are nobody's.
    pub fn keep(&mut self, fresh: &[u8]) {
        if !self.peer_closed && self.failure.is_none() {
            self.sealed.extend_from_slice(fresh);
        }
    }

    /// Takes bytes of the peer and opens records into `room`; returns the plain bytes that are in it, also if the
    /// session fails behind them (`failure`).
    ///
    /// Stops when `room` is full: the rest is kept. During the handshake data are kept, too.
    pub fn receive(&mut self, fresh: &[u8], room: &mut [u8]) -> usize {
        let ready = self.opened.len().min(room.len());
        room[..ready].copy_from_slice(&self.opened[..ready]);
        self.opened.drain(..ready);
        if self.opened.is_empty() {
            // An exact fit must not keep its allocation: a relay's next read comes by `receive_from`.
            self.opened = Vec::new();
        }
        if self.failure.is_some() {
            return ready;
        }
        if !self.opened.is_empty() || (ready == room.len() && ready > 0) {
            self.keep(fresh);
            return ready;
        }
        let copy = |into: &mut [u8]| {
            into.copy_from_slice(fresh);
            Ok(fresh.len())
        };
        // A copy does not fail.
        let (_, filled) = self.receive_from(fresh.len(), &mut room[ready..], copy).unwrap_or_default();
        ready + filled
    }

    /// As `receive`, of `most` bytes that `read` writes; returns those read, and the plain bytes in `room`. For a session
    /// that has no more; an error of `read` changes nothing.
    pub fn receive_from(
        &mut self,
        most: usize,
        room: &mut [u8],
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<(usize, usize)> {
        SCRATCH.with_borrow_mut(|scratch| {
            let kept = self.sealed.len();
            if scratch.len() < kept + most {
                scratch.resize(kept + most, 0);
            }
            let fresh = read(&mut scratch[kept..kept + most])?;
            scratch[..kept].copy_from_slice(&self.sealed);
            let records = &mut scratch[..kept + fresh];
            let (used, filled) = self.open(records, room);
            // An allocation of its own, so that a session at rest has none.
            self.sealed = if self.failure.is_none() { records[used..].to_vec() } else { Vec::new() };
            Ok((fresh, filled))
        })
    }

    /// Opens what is whole; returns the bytes used, and those put into `wanted`.
    fn open(&mut self, records: &mut [u8], wanted: &mut [u8]) -> (usize, usize) {
        let was_open = !self.is_handshaking();
        let mut room = Room { wanted, filled: 0, rest: &mut self.opened, record: 0, paid: 0 };
        // The end of what rustls is given, and of the whole records in it.
        let (mut used, mut given, mut whole) = (0, self.begun, self.begun);
        let (mut waits, mut failure) = (false, None);
        while !room.is_full() {
            if used == given || waits {
                // What there is of the last record is given, too: its head may be wrong.
                (waits, given) = (false, records.len());
                if let Some(bytes) = whole_record(&records[whole..]) {
                    whole += bytes;
                    given = whole;
                    room.record = bytes as u64;
                }
            }
            let rest = &mut records[used..given];
            let own = &mut self.own;
            let (discard, next) = match &mut self.conn {
                Conn::Server(server) => step(server.process_tls_records(rest), own, Some(&mut room)),
                Conn::Client(client) => step(client.process_tls_records(rest), own, Some(&mut room)),
            };
            used += discard;
            match next {
                Ok(Next::Again) => {}
                Ok(Next::PeerClosed) => self.peer_closed = true,
                Ok(Next::Wait) if given == records.len() => break,
                Ok(Next::Wait) => waits = true,
                Err(error) => {
                    failure = Some(describe(&error, self.conn.peer()));
                    break;
                }
            }
        }
        let (filled, paid) = (room.filled, room.paid);
        if self.peer_closed {
            // What is left is nobody's.
            (used, given, whole) = (records.len(), records.len(), records.len());
        }
        self.begun = whole - used;
        if was_open {
            self.idle = (self.idle + used as u64).saturating_sub(paid);
        }
        // A message in pieces is kept with the records around them until it is whole, and so is a part of a record.
        let unpaid = if was_open { self.idle + (given - used) as u64 } else { 0 };
        if let Some(failure) = failure {
            self.draw_alert();
            self.fail(failure);
        } else if was_open && self.begun > MOST_IN_PIECES {
            self.failure = Some(idle_talk(
                self.conn.peer(),
                format!("{} bytes of a message in pieces, expected at most {MOST_IN_PIECES}", self.begun),
            ));
        } else if unpaid > NO_DATA {
            self.failure = Some(idle_talk(
                self.conn.peer(),
                format!("{unpaid} bytes more than its data explain, expected at most {NO_DATA}"),
            ));
        }
        (used, filled)
    }

    /// Ends the session: rustls is not called again.
    pub fn fail(&mut self, failure: Failure) {
        self.failure = Some(failure);
    }

    /// Takes the alert of an error: while records wait to be sent, rustls looks at no bytes.
    fn draw_alert(&mut self) {
        while self.conn.common().wants_write() {
            let _ = match &mut self.conn {
                Conn::Server(server) => step(server.process_tls_records(&mut []), &mut self.own, None),
                Conn::Client(client) => step(client.process_tls_records(&mut []), &mut self.own, None),
            };
        }
    }

    /// Seals `plain` behind what `out` has already.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
        self.write(Some(plain), out)
    }

    /// Says behind what `out` has already that this side sends no more.
    pub fn close_notify(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        if self.closed {
            return Ok(());
        }
        self.closed = true;
        self.write(None, out)
    }

    fn write(&mut self, plain: Option<&[u8]>, out: &mut Vec<u8>) -> Result<(), Failure> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        // What the session has made by itself has its place in the order of records.
        out.append(&mut self.take_own());
        loop {
            let begun = &mut self.sealed[..self.begun];
            let done = match &mut self.conn {
                Conn::Server(server) => put(server.process_tls_records(begun), plain, out),
                Conn::Client(client) => put(client.process_tls_records(begun), plain, out),
            };
            match done {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => {
                    let failure = describe(&error, self.conn.peer());
                    self.failure = Some(failure.clone());
                    return Err(failure);
                }
            }
        }
    }
}

/// The bytes of the first record, if it is whole.
fn whole_record(records: &[u8]) -> Option<usize> {
    let [_, _, _, high, low, ..] = records else {
        return None;
    };
    let bytes = 5 + usize::from(u16::from_be_bytes([*high, *low]));
    (bytes <= records.len()).then_some(bytes)
}

fn step<D>(
    status: UnbufferedStatus<'_, '_, D>,
    own: &mut Vec<u8>,
    room: Option<&mut Room<'_>>,
) -> (usize, Result<Next, Error>) {
    let mut discard = status.discard;
    let state = match status.state {
        Ok(state) => state,
        Err(error) => return (discard, Err(error)),
    };
    let next = match state {
        ConnectionState::ReadTraffic(mut traffic) => {
            let mut room = room;
            while let Some(record) = traffic.next_record() {
                match record {
                    Ok(record) => {
                        discard += record.discard;
                        if let Some(room) = room.as_deref_mut() {
                            room.put(record.payload);
                        }
                    }
                    Err(error) => return (discard, Err(error)),
                }
            }
            Next::Again
        }
        ConnectionState::EncodeTlsData(mut data) => {
            let start = own.len();
            own.resize(start + RECORD_PLAIN + ENVELOPE + SPARE, 0);
            match data.encode(&mut own[start..]) {
                Ok(count) => {
                    own.truncate(start + count);
                    Next::Again
                }
                Err(error) => {
                    own.truncate(start);
                    return (discard, Err(Error::General(error.to_string())));
                }
            }
        }
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Next::Again
        }
        ConnectionState::PeerClosed => Next::PeerClosed,
        _ => Next::Wait,
    };
    (discard, Ok(next))
}

/// Seals, or takes what must be sent before; returns whether it has sealed.
fn put<D>(status: UnbufferedStatus<'_, '_, D>, plain: Option<&[u8]>, out: &mut Vec<u8>) -> Result<bool, Error> {
    let start = out.len();
    match status.state? {
        ConnectionState::WriteTraffic(mut traffic) => {
            let records = plain.map_or(1, |plain| plain.len() / RECORD_PLAIN + 1);
            out.resize(start + plain.map_or(0, <[u8]>::len) + records * ENVELOPE + SPARE, 0);
            loop {
                let sealed = match plain {
                    Some(plain) => traffic.encrypt(plain, &mut out[start..]),
                    None => traffic.queue_close_notify(&mut out[start..]),
                };
                match sealed {
                    Ok(count) => {
                        out.truncate(start + count);
                        return Ok(true);
                    }
                    Err(EncryptError::InsufficientSize(needs)) => {
                        out.resize(start + needs.required_size, 0);
                    }
                    Err(EncryptError::EncryptExhausted) => {
                        out.truncate(start);
                        let text = "the keys have sealed as many records as they may, and TLS 1.2 cannot change them";
                        return Err(Error::General(text.to_owned()));
                    }
                }
            }
        }
        ConnectionState::EncodeTlsData(mut data) => {
            out.resize(start + RECORD_PLAIN + ENVELOPE + SPARE, 0);
            let count = data.encode(&mut out[start..]).map_err(|error| Error::General(error.to_string()))?;
            out.truncate(start + count);
            Ok(false)
        }
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Ok(false)
        }
        other => Err(Error::General(format!("got {other:?}, expected to be allowed to write"))),
    }
}

/// The name of a broker as certificates have it: an address or a host.
fn host(name: &str) -> Result<ServerName<'static>, Failure> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(ServerName::IpAddress(address.into()));
    }
    ServerName::try_from(name.to_owned())
        .map_err(|error| Failure { kind: Kind::Other, text: format!("{name:?} cannot be asked for by name: {error}") })
}

fn describe(error: &Error, peer: &str) -> Failure {
    let (kind, text) = match error {
        Error::NoCertificatesPresented => (Kind::Certificate, format!("the {peer} did not return a certificate")),
        Error::InvalidCertificate(why) => (Kind::Certificate, format!("the certificate is refused: {}", refusal(why))),
        Error::InvalidCertRevocationList(why) => {
            (Kind::Certificate, format!("the list of revoked certificates is refused: {}", words(why)))
        }
        Error::AlertReceived(alert) => (Kind::PeerRefused, format!("the {peer} sent the alert \"{}\"", words(alert))),
        Error::PeerIncompatible(why) => (Kind::VersionOrCipher, incompatible(why)),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            (Kind::NotTls, format!("the {peer} does not speak tls"))
        }
        Error::PeerMisbehaved(PeerMisbehaved::TooManyKeyUpdateRequests) => {
            return idle_talk(peer, "updates of its keys in a row".to_owned());
        }
        Error::InvalidMessage(InvalidMessage::HandshakePayloadTooLarge) => {
            (Kind::Certificate, format!("the {peer}'s chain of certificates is refused: it is too large"))
        }
        Error::InvalidMessage(why) => (Kind::Other, format!("the {peer}'s message cannot be read: {}", words(why))),
        Error::PeerMisbehaved(why) => (Kind::Other, format!("the {peer} breaks the rules of tls: {}", words(why))),
        Error::DecryptError => (Kind::Other, format!("a record of the {peer} cannot be decrypted")),
        Error::General(why) => (Kind::Other, why.clone()),
        other => (Kind::Other, format!("with the {peer}: {other}")),
    };
    Failure { kind, text: text.chars().take(200).collect() }
}

/// The name of a value in words: `TooManyEmptyFragments` is "too many empty fragments".
fn words(value: &impl std::fmt::Debug) -> String {
    let mut words = String::new();
    let mut inside = false;
    for letter in format!("{value:?}").chars().take_while(char::is_ascii_alphanumeric) {
        if letter.is_ascii_uppercase() && inside {
            words.push(' ');
        }
        inside = !letter.is_ascii_uppercase();
        words.push(letter.to_ascii_lowercase());
    }
    words
}

fn idle_talk(peer: &str, detail: String) -> Failure {
    Failure { kind: Kind::Idle, text: format!("the {peer} keeps tls busy with itself: got {detail}") }
}

fn refusal(why: &CertificateError) -> String {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "certificate has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "certificate is not yet valid".to_owned()
        }
        CertificateError::Revoked => "certificate revoked".to_owned(),
        CertificateError::UnknownIssuer => "nobody trusted has signed it".to_owned(),
        CertificateError::UnknownRevocationStatus => "no list of its authority says whether it is revoked".to_owned(),
        CertificateError::ExpiredRevocationList | CertificateError::ExpiredRevocationListContext { .. } => {
            "the list of revoked certificates has expired".to_owned()
        }
        CertificateError::NotValidForName => "it names another host".to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            format!("hostname mismatch: got {}, expected {}", names(presented), expected.to_str())
        }
        CertificateError::BadSignature => {
            "a signature is wrong, or of an RSA key with less than 2,048 or more than 8,192 bits".to_owned()
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "it, or one that it rests on, is signed in a way that is not accepted, as with SHA-1".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its extended key usage does not allow this".to_owned()
        }
        CertificateError::Other(OtherError(why)) => match why.to_string().as_str() {
            "CaUsedAsEndEntity" => {
                "it is an authority's (CA:TRUE), and not itself in the file of trusted ones".to_owned()
            }
            "UnsupportedCertVersion" => {
                "it is not of version 3, and so must itself be trusted, and names no host".to_owned()
            }
            "MaximumPathDepthExceeded" => "more than 6 stand between it and a trusted one".to_owned(),
            why if why.contains(' ') => why.to_owned(),
            _ => words(why),
        },
        other => words(other),
    }
}

/// The names in a certificate, as rustls lists them: `DnsName("a"), IpAddress(1.2.3.4)`.
fn names(presented: &[String]) -> String {
    let bare = |name: &String| {
        let inside = name.split_once('(').map_or(name.as_str(), |(_, rest)| rest.trim_end_matches(')'));
        inside.trim_matches('"').to_owned()
    };
    presented.iter().map(bare).collect::<Vec<_>>().join(", ")
}

fn incompatible(why: &PeerIncompatible) -> String {
    match why {
        PeerIncompatible::NoCipherSuitesInCommon => "no cipher suite in common".to_owned(),
        PeerIncompatible::NoKxGroupsInCommon => "no group of keys in common".to_owned(),
        PeerIncompatible::NoSignatureSchemesInCommon => "no way to sign in common".to_owned(),
        PeerIncompatible::SupportedVersionsExtensionRequired
        | PeerIncompatible::Tls12NotOffered
        | PeerIncompatible::Tls12NotOfferedOrEnabled
        | PeerIncompatible::ServerDoesNotSupportTls12Or13
        | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig => "no version in common".to_owned(),
        // rustls looks for it first, and no hello before TLS 1.2 has it.
        PeerIncompatible::SignatureAlgorithmsExtensionRequired => {
            "no version in common: the client names no way to sign, as before TLS 1.2".to_owned()
        }
        other => words(other),
    }
}
