//! The engine's Python interface: converts values, and lets the interpreter go where anything is waited for.

use std::sync::Arc;

use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::engine::{Engine, Limits, Order, Refused};
use super::producers::{self, Sink, Stop};
use super::queue::{Command, Event, Linger};
use super::scanner;
use super::slots::{Books, TokenBucket};
use super::stats::{Record, PAUSED_BY_WATCH, RECORD};
use super::tap::Tapped;
use crate::python_tls::TlsSession;

type EventTuple = (u64, u64, u64, u64, u64, u64, u64, String);

/// Adds the classes and constants to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("RECORD", RECORD)?;
    module.add_class::<RelayEngine>()?;
    module.add_class::<CommandTap>()?;
    module.add_class::<FrameScanner>()?;
    module.add_class::<SlotBooks>()?;
    module.add_class::<Bucket>()?;
    module.add_class::<ProducerScanner>()
}

fn os_error(error: &std::io::Error) -> PyErr {
    match error.raw_os_error() {
        // OSError chooses its subclass by the number.
        Some(number) => {
            let told = error.to_string();
            let text = told.split(" (os error").next().unwrap_or_default();
            PyOSError::new_err((number, text.to_owned()))
        }
        None => PyValueError::new_err(error.to_string()),
    }
}

fn refusal(refused: Refused) -> PyErr {
    match refused {
        Refused::Stopped => PyRuntimeError::new_err("the relay engine is stopped"),
        Refused::Failed(error) => os_error(&error),
    }
}

fn checked(direction: usize, reason: u32) -> PyResult<()> {
    if direction > 1 {
        return Err(PyValueError::new_err(format!("got direction {direction}, expected 0 or 1")));
    }
    if reason == 0 || reason & PAUSED_BY_WATCH != 0 {
        return Err(PyValueError::new_err(format!(
            "got reason {reason}, expected bits other than the engine's own, 1"
        )));
    }
    Ok(())
}

fn fields(record: &Record) -> [u64; 14] {
    [
        record.id,
        record.to_broker_bytes,
        record.to_client_bytes,
        record.client_reads,
        u64::from(record.held_for_broker),
        u64::from(record.held_for_client),
        u64::from(record.pauses_to_broker),
        u64::from(record.pauses_to_client),
        u64::from(record.half_closed),
        u64::from(record.idle_ms),
        u64::from(record.asks),
        u64::from(record.thread),
        record.spliced_bytes,
        record.untaken_bytes,
    ]
}

/// Relays pairs of sockets in threads of its own: bytes only, Python decides.
///
/// A record of RECORD has: id, bytes to broker, bytes to client, reads of the client's socket, held for broker, held
/// for client, reasons that pause the reading of the client and of the broker, half-closed sides (1 client, 2 broker),
/// ms since a byte came or left, questions about frames, index of the thread, bytes spliced, bytes that both sides have still
/// to take. First bytes count as none.
#[pyclass(frozen, module = "pulsar_proxy_native")]
struct RelayEngine {
    engine: Engine,
}

#[pymethods]
impl RelayEngine {
    /// Without books no pair can be counted. `linger_ms`: a pair that ends with bytes held is over when nobody has taken
    /// any for the first, or after the second.
    #[new]
    #[pyo3(signature = (
        threads, buffer_bytes, linger_ms, pool_bytes = 0, unsent_bytes = 0, books = None, narrow_windows = false
    ))]
    fn new(
        threads: usize,
        buffer_bytes: usize,
        linger_ms: (u64, u64),
        pool_bytes: u64,
        unsent_bytes: usize,
        books: Option<&SlotBooks>,
        narrow_windows: bool,
    ) -> PyResult<Self> {
        let (stall_ms, longest_ms) = linger_ms;
        let limits = Limits { pool_bytes, unsent_bytes, narrow_windows, linger: Linger { stall_ms, longest_ms } };
        let books = books.map(|books| Arc::clone(&books.books));
        let engine = Engine::start(threads, buffer_bytes, limits, books).map_err(|error| os_error(&error))?;
        Ok(RelayEngine { engine })
    }

    #[getter]
    fn event_fd(&self) -> i32 {
        self.engine.event_fd()
    }

    /// `paused`: the reasons for which client and broker are not read from the first byte on. The sessions of sides with
    /// TLS are gone even if it fails.
    #[pyo3(signature = (
        client_fd, broker_fd, to_client, to_broker, scan, count = false, paused = (0, 0), client_tls = None,
        broker_tls = None, tap = None
    ))]
    #[allow(clippy::too_many_arguments)] // Python's own call has names.
    fn join(
        &self,
        client_fd: i32,
        broker_fd: i32,
        to_client: &[u8],
        to_broker: &[u8],
        scan: bool,
        count: bool,
        paused: (u32, u32),
        client_tls: Option<&TlsSession>,
        broker_tls: Option<&TlsSession>,
        tap: Option<&CommandTap>,
    ) -> PyResult<u64> {
        let first = [to_client.to_vec(), to_broker.to_vec()];
        let sessions = [client_tls, broker_tls].map(|session| session.map(TlsSession::take).transpose());
        let [of_client, of_broker] = sessions;
        let sessions = [of_client?, of_broker?];
        let tapped = tap.map(|tap| Arc::clone(&tap.tapped));
        let order = Order { scan, count, tapped, pauses: paused.into() };
        self.engine.join([client_fd, broker_fd], first, sessions, order).map_err(refusal)
    }

    /// What a pair is joined with whose commands are logged.
    fn make_tap(&self) -> CommandTap {
        CommandTap { tapped: Arc::default() }
    }

    /// Writes a prefix and the first `size` bytes of a file to a socket; the caller keeps both descriptors.
    fn write(&self, fd: i32, prefix: &[u8], pages_fd: i32, size: u64) -> PyResult<u64> {
        self.engine.write(fd, prefix, pages_fd, size).map_err(refusal)
    }

    /// Closes a file that was written from; returns whether the engine has taken the descriptor.
    fn close_pages(&self, pages_fd: i32) -> bool {
        pages_fd >= 0 && self.engine.close_pages(pages_fd)
    }

    fn end_write(&self, body: u64) {
        self.engine.end_write(body);
    }

    fn written(&self, body: u64) -> Option<u64> {
        self.engine.written(body)
    }

    fn pause(&self, pair: u64, direction: usize, reason: u32) -> PyResult<()> {
        checked(direction, reason)?;
        self.engine.pause(pair, direction, reason);
        Ok(())
    }

    fn resume(&self, pair: u64, direction: usize, reason: u32) -> PyResult<()> {
        checked(direction, reason)?;
        self.engine.resume(pair, direction, reason);
        Ok(())
    }

    fn pass_frames(&self, pair: u64, generation: u64) {
        self.engine.send(pair, Command::Pass(pair, generation));
    }

    /// The topic of a PRODUCER that waits; once.
    fn take_topic<'py>(&self, py: Python<'py>, pair: u64, generation: u64) -> Option<Bound<'py, PyBytes>> {
        self.engine.take_topic(pair, generation).map(|topic| PyBytes::new(py, &topic))
    }

    fn assign(&self, pair: u64, generation: u64, slot: u32) {
        self.engine.assign(pair, generation, slot);
    }

    fn drip(&self, pair: u64, direction: usize, whole_read: bool) -> PyResult<()> {
        if direction > 1 {
            return Err(PyValueError::new_err(format!("got direction {direction}, expected 0 or 1")));
        }
        self.engine.send(pair, Command::Drip(pair, direction, whole_read));
        Ok(())
    }

    /// What the client has sent: 1 a PRODUCER, 2 a SUBSCRIBE.
    fn seen_of(&self, pair: u64) -> u32 {
        self.engine.seen_of(pair)
    }

    /// The bytes of the client that waited in the kernel at the last call.
    fn unread_of(&self, pair: u64) -> u64 {
        self.engine.unread_of(pair)
    }

    fn close(&self, pair: u64, stall_ms: u64) {
        self.engine.send(pair, Command::Close(pair, stall_ms));
    }

    fn abort(&self, pair: u64) {
        self.engine.send(pair, Command::Abort(pair));
    }

    fn events(&self, most: usize) -> Vec<EventTuple> {
        let tuple = |(event, failure): (Event, String)| {
            let [a, b, c, d, e] = event.values;
            (event.kind as u64, event.pair, a, b, c, d, e, failure)
        };
        self.engine.events(most).into_iter().map(tuple).collect()
    }

    /// The records of the first `most` pairs with a number above `after`: 20,000 at once would take some ms.
    #[pyo3(signature = (after = 0, most = usize::MAX))]
    fn snapshot<'py>(&self, py: Python<'py>, after: u64, most: usize) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.engine.snapshot(after, most))
    }

    /// The fields of a record, in the order of RECORD. PyO3 has no tuples of thirteen.
    fn snapshot_of<'py>(&self, py: Python<'py>, pair: u64) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.engine.snapshot_of(pair).map(|record| PyTuple::new(py, fields(&record))).transpose()
    }

    fn beats(&self) -> Vec<u64> {
        self.engine.beats()
    }

    fn rounds(&self) -> Vec<u64> {
        self.engine.rounds()
    }

    /// Bytes of kernel memory of the sockets towards brokers, and towards clients.
    fn socket_memory(&self) -> (u64, u64) {
        self.engine.socket_memory()
    }

    /// Says whether the kernel memory of all sockets is short.
    fn set_tight(&self, tight: bool) {
        self.engine.set_tight(tight);
    }

    /// Pair, bytes of kernel memory and bytes read in the last second of those whose sockets hold most.
    fn heaviest(&self, most: usize) -> Vec<(u64, u64, u64)> {
        self.engine.heaviest(most)
    }

    /// Bytes of that memory that were received and are not read: from brokers, and from clients.
    fn received_memory(&self) -> (u64, u64) {
        self.engine.received_memory()
    }

    /// Limit, used bytes, directions that wait, ms that directions have waited, overshoots, ms without memory.
    fn pool(&self) -> Option<(u64, u64, u64, u64, u64, u64)> {
        let found = self.engine.pool_record()?;
        Some((found.limit, found.used, found.muted, found.muted_ms, found.overshoots, found.depleted_ms))
    }

    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.engine.stop());
    }
}

/// The commands of one pair for the log (proxy/relay/logged_commands.py); it outlives the pair.
#[pyclass(frozen, module = "pulsar_proxy_native")]
struct CommandTap {
    tapped: Arc<Tapped>,
}

#[pymethods]
impl CommandTap {
    /// The oldest heads of frames, each with its direction; the next event comes when all were taken.
    fn take<'py>(&self, py: Python<'py>, most: usize) -> Vec<(usize, Bound<'py, PyBytes>)> {
        let taken = self.tapped.take(most);
        taken.iter().map(|(direction, head)| (*direction, PyBytes::new(py, head))).collect()
    }

    fn close(&self) {
        self.tapped.close();
    }
}

/// Scans a stream of frames, for tests.
#[pyclass(module = "pulsar_proxy_native")]
struct FrameScanner {
    scanner: scanner::FrameScanner,
}

#[pymethods]
impl FrameScanner {
    #[new]
    fn new() -> Self {
        FrameScanner { scanner: scanner::FrameScanner::new() }
    }

    #[getter]
    fn ended(&self) -> bool {
        self.scanner.ended()
    }

    /// Returns None, or start, successes, updates, frame_bytes, open_bytes and unwalkable.
    fn scan(&mut self, data: &[u8]) -> Option<(usize, u64, u64, u64, u64, bool)> {
        let found = self.scanner.scan(data)?;
        let scanner::FrameMatch { start, successes, updates, frame_bytes, open_bytes, unwalkable } = found;
        Some((start, successes, updates, frame_bytes, open_bytes, unwalkable))
    }
}

/// The books of topics by slot, shared by the engine's threads and Python (proxy/relay/topic_slots.py).
#[pyclass(frozen, module = "pulsar_proxy_native")]
struct SlotBooks {
    books: Arc<Books>,
}

fn checked_rate(rate: Option<f64>) -> PyResult<Option<f64>> {
    match rate {
        Some(rate) if !(rate > 0.0 && rate.is_finite()) => {
            Err(PyValueError::new_err(format!("got a rate of {rate}, expected more than 0, or None for no limit")))
        }
        rate => Ok(rate),
    }
}

#[pymethods]
impl SlotBooks {
    #[new]
    fn new() -> Self {
        SlotBooks { books: Arc::default() }
    }

    fn debit(&self, slot: u32, size: u64, messages: u64, now: f64) -> bool {
        self.books.debit(slot, size, messages, now)
    }

    fn ready_at(&self, slot: u32, now: f64) -> f64 {
        self.books.ready_at(slot, now)
    }

    #[pyo3(signature = (slot, bytes_per_second, messages_per_second, now))]
    fn set_rate(
        &self,
        slot: u32,
        bytes_per_second: Option<f64>,
        messages_per_second: Option<f64>,
        now: f64,
    ) -> PyResult<()> {
        self.books.set_rate(slot, [checked_rate(bytes_per_second)?, checked_rate(messages_per_second)?], now);
        Ok(())
    }

    fn take(&self, slot: u32) -> (u64, u64, bool, u32) {
        self.books.take(slot)
    }

    fn producers(&self, slot: u32) -> u32 {
        self.books.producers(slot)
    }

    fn clear(&self, slot: u32) {
        self.books.clear(slot);
    }

    fn hold(&self, slot: u32) {
        self.books.hold(slot);
    }

    fn let_go(&self, slot: u32) {
        self.books.let_go(slot);
    }

    fn set_max_pause_millis(&self, millis: u64) {
        self.books.set_max_pause_ms(millis);
    }

    fn counts(&self) -> (u64, u64, u64) {
        self.books.counts()
    }
}

/// A token bucket, for tests.
#[pyclass(name = "TokenBucket", module = "pulsar_proxy_native")]
struct Bucket {
    bucket: TokenBucket,
}

#[pymethods]
impl Bucket {
    #[new]
    fn new(floor: f64) -> Self {
        Bucket { bucket: TokenBucket::new(floor) }
    }

    #[pyo3(signature = (rate, now))]
    fn set_rate(&mut self, rate: Option<f64>, now: f64) -> PyResult<()> {
        self.bucket.set_rate(checked_rate(rate)?, now);
        Ok(())
    }

    fn take(&mut self, count: f64, now: f64) -> bool {
        self.bucket.take(count, now)
    }

    fn ready_at(&mut self, now: f64) -> f64 {
        self.bucket.ready_at(now)
    }
}

type Told = (&'static str, Option<u64>, u64, u64, Option<Vec<u8>>);

#[derive(Default)]
struct Found(Vec<Told>);

impl Sink for Found {
    fn send(&mut self, producer: Option<u64>, messages: u64, frame_bytes: u64) {
        self.0.push(("send", producer, messages, frame_bytes, None));
    }

    fn closed(&mut self, producer: u64) {
        self.0.push(("closed", Some(producer), 0, 0, None));
    }

    fn subscribed(&mut self) {
        self.0.push(("subscribed", None, 0, 0, None));
    }

    fn ended(&mut self) {
        self.0.push(("ended", None, 0, 0, None));
    }
}

/// Scans a client's stream, for tests.
#[pyclass(module = "pulsar_proxy_native")]
struct ProducerScanner {
    scanner: producers::ProducerScanner,
}

#[pymethods]
impl ProducerScanner {
    #[new]
    fn new() -> Self {
        ProducerScanner { scanner: producers::ProducerScanner::new() }
    }

    #[getter]
    fn has_ended(&self) -> bool {
        self.scanner.ended()
    }

    #[getter]
    fn between_frames(&self) -> bool {
        self.scanner.between_frames()
    }

    #[getter]
    fn room(&self) -> u64 {
        self.scanner.room()
    }

    /// Returns what is found: its kind, producer, messages, size and topic.
    fn scan(&mut self, data: &[u8]) -> Vec<Told> {
        let (mut found, mut from) = (Found::default(), 0);
        while let Some(Stop { producer, resume, .. }) = self.scanner.scan(&data[from..], &mut found) {
            found.0.push(("producer", producer.id, 0, 0, producer.topic));
            from += resume;
        }
        found.0
    }
}
