//! Tests of the engine with real sockets, and of its parts without.

mod bodies;
mod direction;
mod ends;
mod flow;
mod idle;
mod pool;
mod producers;
mod queue;
mod rates;
mod scanner;
mod splice;
mod stress;
mod taps;
mod windows;

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{mpsc, Arc};
use std::time::Duration;

use super::engine::{Engine, Limits, Order};
use super::queue::{Command, Event, Kind, Linger};
use super::slots::Books;
use super::stats::Record;
use super::sys;
use super::tap::Tapped;

pub const BUFFER: usize = 64 * 1024;
const PATIENCE_MS: i32 = 300_000;
pub const LINGER: Linger = Linger { stall_ms: 10_000, longest_ms: 300_000 };
pub const NO_LIMITS: Limits = Limits { pool_bytes: 0, unsent_bytes: 0, narrow_windows: false, linger: LINGER };

/// An engine and the events that no test has asked for yet.
pub struct Stand {
    pub engine: Engine,
    pub books: Arc<Books>,
    /// Pairs that join now are counted.
    pub counts: bool,
    /// Where the commands of pairs that join now wait.
    pub tapped: Option<Arc<Tapped>>,
    poll: OwnedFd,
    seen: VecDeque<Event>,
    /// Sockets for which the kernel had much to send when their pairs ended.
    pub left: Vec<OwnedFd>,
}

/// A pair, and the far ends of its sockets.
pub struct Joined {
    pub id: u64,
    pub client: TcpStream,
    pub broker: TcpStream,
}

/// Makes a connection; the first end is the engine's.
pub fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (near, _) = listener.accept().unwrap();
    prepared(near, far)
}

fn unix() -> (TcpStream, TcpStream) {
    let (near, far) = UnixStream::pair().unwrap();
    prepared(OwnedFd::from(near).into(), OwnedFd::from(far).into())
}

fn prepared(near: TcpStream, far: TcpStream) -> (TcpStream, TcpStream) {
    near.set_nonblocking(true).unwrap();
    far.set_read_timeout(Some(Duration::from_millis(PATIENCE_MS as u64))).unwrap();
    far.set_write_timeout(Some(Duration::from_millis(PATIENCE_MS as u64))).unwrap();
    (near, far)
}

/// Waits until something is so.
pub fn until(what: &str, so: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if so() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("never: {what}");
}

impl Stand {
    pub fn new(threads: usize) -> Self {
        Stand::with_buffer(threads, BUFFER)
    }

    pub fn with_buffer(threads: usize, buffer_bytes: usize) -> Self {
        Stand::limited(threads, buffer_bytes, NO_LIMITS)
    }

    pub fn limited(threads: usize, buffer_bytes: usize, limits: Limits) -> Self {
        let books = Arc::<Books>::default();
        let engine = Engine::start(threads, buffer_bytes, limits, Some(Arc::clone(&books))).unwrap();
        let poll = sys::epoll().unwrap();
        sys::epoll_add(&poll, engine.event_fd(), libc::EPOLLIN as u32, 0).unwrap();
        Stand { engine, books, counts: false, tapped: None, poll, seen: VecDeque::new(), left: Vec::new() }
    }

    pub fn join(&self) -> Joined {
        self.join_with(b"", b"", false)
    }

    pub fn join_scanned(&self) -> Joined {
        self.join_with(b"", b"", true)
    }

    pub fn join_with(&self, to_client: &[u8], to_broker: &[u8], scan: bool) -> Joined {
        self.join_sockets(tcp(), tcp(), to_client, to_broker, scan)
    }

    pub fn join_unix(&self, scan: bool) -> Joined {
        self.join_sockets(unix(), unix(), b"", b"", scan)
    }

    pub fn join_sockets(
        &self,
        client: (TcpStream, TcpStream),
        broker: (TcpStream, TcpStream),
        to_client: &[u8],
        to_broker: &[u8],
        scan: bool,
    ) -> Joined {
        self.join_paused(client, broker, (to_client, to_broker), scan, [0, 0])
    }

    pub fn join_paused(
        &self,
        client: (TcpStream, TcpStream),
        broker: (TcpStream, TcpStream),
        (to_client, to_broker): (&[u8], &[u8]),
        scan: bool,
        pauses: [u32; 2],
    ) -> Joined {
        let fds: [RawFd; 2] = [client.0.into_raw_fd(), broker.0.into_raw_fd()];
        let first = [to_client.to_vec(), to_broker.to_vec()];
        let order = Order { scan, count: self.counts, tapped: self.tapped.clone(), pauses };
        let id = self.engine.join(fds, first, [None, None], order).unwrap();
        Joined { id, client: client.1, broker: broker.1 }
    }

    /// Waits for the next event, in order.
    pub fn next(&mut self) -> Event {
        self.next_within(PATIENCE_MS).expect("an event")
    }

    pub fn next_within(&mut self, ms: i32) -> Option<Event> {
        if let Some(event) = self.seen.pop_front() {
            return Some(event);
        }
        let mut ready = [sys::NO_EVENT; 1];
        for timeout in [ms, 0] {
            sys::epoll_wait(&self.poll, &mut ready, timeout).unwrap();
            for (event, _) in self.engine.events(1_000) {
                match event.kind {
                    Kind::Left => self.left.push(sys::adopt(event.values[0] as RawFd)),
                    _ => self.seen.push_back(event),
                }
            }
            if let Some(event) = self.seen.pop_front() {
                return Some(event);
            }
        }
        None
    }

    /// Waits for an event of this kind of this pair; others must not come.
    pub fn expect(&mut self, kind: Kind, pair: &Joined) -> [u64; 5] {
        let event = self.next();
        assert_eq!((event.kind, event.pair), (kind, pair.id), "{event:?}");
        event.values
    }

    pub fn record(&self, pair: &Joined) -> Record {
        self.engine.snapshot_of(pair.id).expect("a pair whose end was not taken")
    }

    /// Waits until a record is as wanted: for states that no event tells.
    pub fn until(&self, pair: &Joined, wanted: impl Fn(&Record) -> bool) -> Record {
        for _ in 0..PATIENCE_MS {
            let record = self.record(pair);
            if wanted(&record) {
                return record;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("still {:?}", self.record(pair));
    }

    pub fn send(&self, pair: &Joined, command: Command) {
        self.engine.send(pair.id, command);
    }

    pub fn cpu_micros(&self, thread: usize) -> u64 {
        let (answer, told) = mpsc::channel();
        self.engine.tell_thread(thread, Command::Cpu(answer));
        told.recv().unwrap()
    }
}

/// Reads exactly `count` bytes.
pub fn read(from: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    from.read_exact(&mut bytes).unwrap();
    bytes
}

/// Reads until the end.
pub fn read_all(from: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Says whether a connection ended with a reset, after whatever came before.
pub fn is_reset(from: &mut TcpStream) -> bool {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

/// Writes until the kernel takes no more for a while; returns how much it took. `pattern` gives the bytes.
pub fn fill(to: &mut TcpStream, pattern: &[u8]) -> usize {
    to.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut sent = 0;
    while sent < pattern.len() {
        match to.write(&pattern[sent..]) {
            Ok(count) => sent += count,
            Err(_) => break,
        }
    }
    to.set_write_timeout(Some(Duration::from_millis(PATIENCE_MS as u64))).unwrap();
    sent
}

/// Ends a connection with an RST.
pub fn reset(socket: TcpStream) {
    sys::reset_on_close(socket.as_fd());
}

/// Bytes without a period that a mistake could hide behind.
pub fn noise(count: usize) -> Vec<u8> {
    let mut random = Random(count as u64 + 1);
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

/// A frame of Pulsar: a command of `kind` with `payload` bytes behind its head.
pub fn frame(kind: u8, payload: usize) -> Vec<u8> {
    let command = 2 + payload as u32;
    let mut bytes = (command + 4).to_be_bytes().to_vec();
    bytes.extend_from_slice(&command.to_be_bytes());
    bytes.extend_from_slice(&[8, kind]);
    bytes.extend_from_slice(&noise(payload));
    bytes
}

/// Numbers that look random and are the same in every run (xorshift64*).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}
