//! Sessions of TLS as classes of Python. A session may be moved into the engine once: it is empty then, and every call
//! of its class raises. No call lets the interpreter go while it has the session.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Mutex, MutexGuard};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::tls::{self, Config, Failure, Kind, Session, Settings, Unusable, Verify};

/// Adds the classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TlsConfig>()?;
    module.add_class::<TlsSession>()?;
    module.add("TLS_SUITES", tls::suites())
}

/// The settings of accepted connections, or of those to brokers; never changed. Raises ValueError(setting, text).
#[pyclass(module = "pulsar_proxy_native", frozen)]
pub struct TlsConfig {
    config: Config,
}

#[pymethods]
impl TlsConfig {
    /// All of it in DER. `verify`: 0 asks for no certificate, 1 for one that may be missing, 2 requires one.
    #[new]
    #[pyo3(signature = (*, server_side, chain, key, roots, lists, verify, check_name, versions, suites, resumes))]
    #[allow(clippy::too_many_arguments)] // Each is named by its caller.
    fn new(
        py: Python<'_>,
        server_side: bool,
        chain: Vec<Vec<u8>>,
        key: Vec<u8>,
        roots: Vec<Vec<u8>>,
        lists: Vec<Vec<u8>>,
        verify: u8,
        check_name: bool,
        versions: Vec<u16>,
        suites: Vec<u16>,
        resumes: bool,
    ) -> PyResult<Self> {
        let verify = match verify {
            0 => Verify::Nothing,
            1 => Verify::Optional,
            _ => Verify::Required,
        };
        let settings = Settings { chain, key, roots, lists, verify, check_name, versions, suites, resumes };
        // Some hundred authorities take milliseconds.
        let made = py.detach(|| if server_side { Config::server(&settings) } else { Config::client(&settings) });
        match made {
            Ok(config) => Ok(TlsConfig { config }),
            Err(Unusable { setting, text }) => Err(PyValueError::new_err((setting, text))),
        }
    }
}

/// One connection's session: bytes of the peer in, plain bytes out, and the other way round.
#[pyclass(module = "pulsar_proxy_native", frozen)]
pub struct TlsSession {
    session: Mutex<Option<Box<Session>>>,
}

/// Reasons to look closer after `receive`.
const MORE: u8 = 1;
const OWN: u8 = 2;
const PEER_CLOSED: u8 = 4;
const FAILED: u8 = 8;

fn gone() -> PyErr {
    PyRuntimeError::new_err("the session has moved into the relay engine")
}

fn kind(failure: &Failure) -> &'static str {
    match failure.kind {
        Kind::Certificate => "certificate",
        Kind::VersionOrCipher => "version_or_cipher",
        Kind::PeerRefused => "peer_refused",
        Kind::NotTls => "not_tls",
        Kind::Idle => "broken",
        Kind::Other => "other",
    }
}

impl TlsSession {
    fn lock(&self) -> MutexGuard<'_, Option<Box<Session>>> {
        self.session.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes the session: the relay engine goes on with it.
    pub fn take(&self) -> PyResult<Box<Session>> {
        self.lock().take().ok_or_else(gone)
    }

    /// Calls with the session; a panic of what bytes of a peer have done ends it.
    fn with<T>(&self, act: impl FnOnce(&mut Session) -> T) -> PyResult<T> {
        let mut held = self.lock();
        let session = held.as_mut().ok_or_else(gone)?;
        match catch_unwind(AssertUnwindSafe(|| act(session))) {
            Ok(value) => Ok(value),
            Err(_) => {
                let text = "the session of tls has panicked";
                session.fail(Failure { kind: Kind::Other, text: text.to_owned() });
                Err(PyRuntimeError::new_err(text))
            }
        }
    }
}

#[pymethods]
impl TlsSession {
    /// `name`: the host of a broker, as its certificate has to name it. Raises ValueError(kind, text).
    #[new]
    fn new(config: &TlsConfig, name: &str) -> PyResult<Self> {
        match Session::new(&config.config, name) {
            Ok(session) => Ok(TlsSession { session: Mutex::new(Some(Box::new(session))) }),
            Err(failure) => Err(PyValueError::new_err((kind(&failure), failure.text.clone()))),
        }
    }

    /// Open records of `sealed`, behind what is kept, into `room`; return the plain bytes in it.
    fn receive(&self, sealed: PyBuffer<u8>, room: PyBuffer<u8>) -> PyResult<usize> {
        let (from, to) = (sealed.buf_ptr() as usize, room.buf_ptr() as usize);
        if from < to + room.len_bytes() && to < from + sealed.len_bytes() {
            return Err(PyBufferError::new_err("expected two buffers that share no bytes"));
        }
        let fresh = bytes_of(&sealed)?;
        let wanted = room_of(&room)?;
        self.with(|session| session.receive(fresh, wanted))
    }

    /// Keep bytes of the peer for a later `receive`.
    fn keep(&self, sealed: &[u8]) -> PyResult<()> {
        self.with(|session| session.keep(sealed))
    }

    /// Bits that say what `receive` has left behind: 1 more to receive, 2 records of the session's own, 4 the peer
    /// sends no more, 8 the session has failed.
    #[getter]
    fn flags(&self) -> PyResult<u8> {
        self.with(|session| {
            (MORE * u8::from(session.has_more()))
                | (OWN * u8::from(session.has_own()))
                | (PEER_CLOSED * u8::from(session.peer_closed()))
                | (FAILED * u8::from(session.failure().is_some()))
        })
    }

    /// The kind and the text of a failure.
    #[getter]
    fn failure(&self) -> PyResult<Option<(&'static str, String)>> {
        self.with(|session| session.failure().map(|failure| (kind(failure), failure.text.clone())))
    }

    #[getter]
    fn handshaking(&self) -> PyResult<bool> {
        self.with(|session| session.is_handshaking())
    }

    /// Bytes that came and were not handed out.
    #[getter]
    fn kept(&self) -> PyResult<usize> {
        self.with(|session| session.kept())
    }

    /// Return the records that the session has made by itself.
    fn take_own<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let own = self.with(Session::take_own)?;
        Ok(PyBytes::new(py, &own))
    }

    /// Return records of these bytes, in pieces. Raises ValueError(kind, text).
    fn seal<'py>(&self, py: Python<'py>, pieces: Vec<PyBuffer<u8>>) -> PyResult<Bound<'py, PyBytes>> {
        let mut out = Vec::new();
        let plain: Vec<&[u8]> = pieces.iter().map(bytes_of).collect::<PyResult<_>>()?;
        let sealed = self.with(|session| {
            plain.iter().filter(|each| !each.is_empty()).try_for_each(|each| session.seal(each, &mut out))
        })?;
        match sealed {
            Ok(()) => Ok(PyBytes::new(py, &out)),
            Err(failure) => Err(PyValueError::new_err((kind(&failure), failure.text))),
        }
    }

    /// Return the record that says that this side sends no more; empty if it was said, or cannot be.
    fn close_notify<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let mut out = Vec::new();
        self.with(|session| session.close_notify(&mut out).is_ok())?;
        Ok(PyBytes::new(py, &out))
    }

    /// The peer's certificates in DER, its own first.
    fn peer_certificates<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let found = self.with(|session| session.peer_certificates())?;
        Ok(found.iter().map(|each| PyBytes::new(py, each)).collect())
    }

    /// The version and the suite, empty before they are known.
    #[getter]
    fn agreed(&self) -> PyResult<(&'static str, String)> {
        self.with(|session| (session.version(), session.suite()))
    }
}

/// The bytes of a buffer, without a copy.
#[allow(unsafe_code)] // A copy of each read and write would be the price.
fn bytes_of(buffer: &PyBuffer<u8>) -> PyResult<&[u8]> {
    match buffer.as_slice_ptr() {
        // SAFETY: this thread is attached to the interpreter until the call of Python's returns, and runs no Python
        // meanwhile, so that nobody can change the bytes or their place.
        Some(bytes) => Ok(unsafe { bytes.as_ref() }),
        None if buffer.item_count() == 0 => Ok(&[]),
        None => Err(PyBufferError::new_err("expected bytes in one piece")),
    }
}

/// The room of a buffer that may be written to; the caller has no other reference to it.
#[allow(unsafe_code)] // As above.
#[allow(clippy::mut_from_ref)]
fn room_of(buffer: &PyBuffer<u8>) -> PyResult<&mut [u8]> {
    match buffer.as_slice_ptr() {
        // SAFETY: as above; the other buffer of the call shares no byte with it.
        Some(mut room) if !buffer.readonly() => Ok(unsafe { room.as_mut() }),
        _ if buffer.item_count() == 0 => Ok(&mut []),
        _ => Err(PyBufferError::new_err("expected a buffer in one piece that may be written to")),
    }
}
