//! The engine: starts the threads, gives each pair to one of them, and passes commands on.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::{io, process};

use super::body::{Body, Written};
use super::pool::{Pool, PoolRecord};
use super::queue::{lock, Command, CommandQueue, Event, EventQueue, Joined, Kind, Linger};
use super::slots::{Books, Hold, Waiting};
use super::stats::{Record, Stats, PAUSED_BY_WATCH, RECORD_BYTES};
use super::sys;
use super::tap::Tapped;
use super::windows::Windows;
use super::worker::{run, Clock, Shared, NOT_YET, WOKEN};
use crate::tls::Session;

const LARGEST_BUFFER: usize = 16 * 1024 * 1024;
const SMALLEST_BUFFER: usize = 4 * 1024;
const MOST_THREADS: usize = 64;

/// Why a pair was not taken: the caller still owns both sockets.
#[derive(Debug)]
pub enum Refused {
    Stopped,
    Failed(io::Error),
}

/// The engine of a process. All methods may be called from any thread; none waits for a system call of another.
pub struct Engine {
    threads: Vec<Arc<Shared>>,
    handles: Mutex<Vec<JoinHandle<()>>>,
    outbox: Arc<EventQueue>,
    /// Pairs until Python has been told of their end: so their counters can be read until then. No thread of the
    /// engine takes this lock. In the order of their ids, so that a snapshot can go on where it stopped.
    known: Mutex<BTreeMap<u64, Arc<Stats>>>,
    /// Bodies until Python has been told of their end.
    written: Mutex<HashMap<u64, Arc<Written>>>,
    joined: AtomicU64,
    clock: Clock,
    pool: Option<Arc<Pool>>,
    books: Option<Arc<Books>>,
    windows: Option<Arc<Windows>>,
    linger: Linger,
    process: u32,
}

/// Kernel memory of a pair's sockets, as of the last second, and the bytes that the pair read in that second.
pub type SocketLoad = (u64, u64, u64);

/// The limit of the relay pool in bytes, 0 for none, the kernel's bound for unsent bytes of a socket, and the clocks of
/// pairs that end.
#[derive(Clone, Copy)]
pub struct Limits {
    pub pool_bytes: u64,
    pub unsent_bytes: usize,
    /// Receive windows are narrow until somebody has shown to take bytes; else all are left alone.
    pub narrow_windows: bool,
    pub linger: Linger,
}

/// What is done with a pair besides moving its bytes.
#[derive(Default)]
pub struct Order {
    /// Frames for watchers wait for an answer.
    pub scan: bool,
    /// The books count what the client sends.
    pub count: bool,
    /// Commands are told, for the log.
    pub tapped: Option<Arc<Tapped>>,
    /// Reasons not to read each direction from the first byte on.
    pub pauses: [u32; 2],
}

impl Engine {
    /// Starts `threads` threads, each with one read buffer; all share a relay pool, if it has a limit. `books` count what
    /// clients of counted pairs send.
    pub fn start(threads: usize, buffer_bytes: usize, limits: Limits, books: Option<Arc<Books>>) -> io::Result<Engine> {
        let sizes = SMALLEST_BUFFER..=LARGEST_BUFFER;
        if !(1..=MOST_THREADS).contains(&threads) || !sizes.contains(&buffer_bytes) {
            let told = format!(
                "got {threads} threads and {buffer_bytes} bytes, expected 1 to {MOST_THREADS} threads and \
                 {SMALLEST_BUFFER} to {LARGEST_BUFFER} bytes"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, told));
        }
        let outbox = Arc::new(EventQueue::new()?);
        let clock = Clock::start();
        let pool = match limits.pool_bytes {
            0 => None,
            limit => Some(Arc::new(Pool::new(limit, threads, buffer_bytes, clock)?)),
        };
        let mut engine = Engine {
            threads: Vec::new(),
            handles: Mutex::default(),
            outbox: Arc::clone(&outbox),
            known: Mutex::default(),
            written: Mutex::default(),
            joined: AtomicU64::new(0),
            clock,
            pool,
            books,
            windows: limits.narrow_windows.then(Arc::default),
            linger: limits.linger,
            process: process::id(),
        };
        for index in 0..threads {
            // An error drops the engine, which stops the threads that run already.
            engine.start_thread(index as u32, buffer_bytes, limits.unsent_bytes)?;
        }
        Ok(engine)
    }

    fn start_thread(&mut self, index: u32, buffer_bytes: usize, unsent_bytes: usize) -> io::Result<()> {
        let shared = Arc::new(Shared {
            index,
            epoll: sys::epoll()?,
            inbox: CommandQueue::new()?,
            outbox: Arc::clone(&self.outbox),
            clock: self.clock,
            beat: AtomicU64::new(self.clock.now()),
            rounds: AtomicU64::new(0),
            pairs: AtomicUsize::new(0),
            bodies: AtomicUsize::new(0),
            load: AtomicU32::new(0),
            newcomers: AtomicU32::new(0),
            pool: self.pool.as_ref().map(|pool| (Arc::clone(pool), unsent_bytes)),
            rates_told: AtomicBool::new(false),
        });
        if let Some(books) = &self.books {
            let one: Arc<dyn Waiting> = Arc::clone(&shared) as Arc<dyn Waiting>;
            books.tell(Arc::downgrade(&one));
        }
        sys::epoll_add(&shared.epoll, shared.inbox.fd(), libc::EPOLLIN as u32 | sys::QUIET, WOKEN)?;
        let given = Arc::clone(&shared);
        let builder = Builder::new().name(format!("relay-{index}"));
        let handle = sys::with_signals_blocked(|| builder.spawn(move || run(given, buffer_bytes)))?;
        lock(&self.handles).push(handle);
        self.threads.push(shared);
        Ok(())
    }

    /// Returns the descriptor that is readable while events wait.
    pub fn event_fd(&self) -> RawFd {
        self.outbox.fd()
    }

    /// Takes a pair over, and returns its id; the engine owns both sockets only if that succeeds.
    pub fn join(
        &self,
        fds: [RawFd; 2],
        first: [Vec<u8>; 2],
        sessions: [Option<Box<Session>>; 2],
        order: Order,
    ) -> Result<u64, Refused> {
        let Order { scan, count, tapped, pauses } = order;
        let Some(thread) = self.threads.iter().min_by_key(|thread| thread.burden()) else {
            return Err(Refused::Stopped);
        };
        let [client, broker] = fds;
        sys::epoll_add(&thread.epoll, client, sys::QUIET, NOT_YET).map_err(Refused::Failed)?;
        if let Err(error) = sys::epoll_add(&thread.epoll, broker, sys::QUIET, NOT_YET) {
            let _ = sys::epoll_remove(&thread.epoll, client);
            return Err(Refused::Failed(error));
        }
        let id = self.next_id(thread);
        let stats = Arc::new(Stats::charging(self.pool.as_ref(), id, thread.index, self.clock.now()));
        for (lane, reasons) in stats.lanes.iter().zip(pauses) {
            lane.pause(reasons & !PAUSED_BY_WATCH);
        }
        let [to_client, to_broker] = first;
        // Known before the thread can tell of its end.
        lock(&self.known).insert(id, Arc::clone(&stats));
        thread.pairs.fetch_add(1, Relaxed);
        thread.newcomers.fetch_add(1, Relaxed);
        let [client_fd, broker_fd] = [sys::adopt(client), sys::adopt(broker)];
        let counted = self.books.clone().filter(|_| count).map(|books| (books, self.clock.epoch()));
        if let Some(tapped) = &tapped {
            tapped.begin(Arc::downgrade(thread), id);
        }
        let (client, broker, windows, linger) = (client_fd, broker_fd, self.windows.clone(), self.linger);
        let joined =
            Joined { stats, client, broker, to_client, to_broker, sessions, scan, counted, tapped, windows, linger };
        let Err(command) = thread.inbox.send(Command::Join(Box::new(joined))) else {
            return Ok(id);
        };
        lock(&self.known).remove(&id);
        thread.pairs.fetch_sub(1, Relaxed);
        for fd in fds {
            let _ = sys::epoll_remove(&thread.epoll, fd);
        }
        if let Command::Join(joined) = command {
            // The caller closes them: ours to give back, not to close.
            let Joined { client, broker, .. } = *joined;
            sys::give_back(client);
            sys::give_back(broker);
        }
        Err(Refused::Stopped)
    }

    fn next_id(&self, thread: &Shared) -> u64 {
        let number = self.joined.fetch_add(1, Relaxed) + 1;
        number * self.threads.len() as u64 + u64::from(thread.index)
    }

    /// Writes a prefix and the first `size` bytes of a file to a socket; both descriptors stay the caller's. Returns
    /// the body's id, of the same numbers as those of pairs.
    pub fn write(&self, socket: RawFd, prefix: &[u8], pages: RawFd, size: u64) -> Result<u64, Refused> {
        let Some(thread) = self.threads.iter().min_by_key(|thread| thread.burden()) else {
            return Err(Refused::Stopped);
        };
        let socket = sys::duplicate(socket).map_err(Refused::Failed)?;
        let pages = sys::duplicate(pages).map_err(Refused::Failed)?;
        let id = self.next_id(thread);
        let written = Arc::new(Written::new(id, thread.index));
        lock(&self.written).insert(id, Arc::clone(&written));
        thread.bodies.fetch_add(1, Relaxed);
        let body = Body {
            written,
            socket,
            prefix: prefix.to_vec(),
            pages,
            size,
            watched: false,
            retrying: false,
            queued: false,
        };
        if thread.inbox.send(Command::Write(Box::new(body))).is_ok() {
            return Ok(id);
        }
        lock(&self.written).remove(&id);
        thread.bodies.fetch_sub(1, Relaxed);
        Err(Refused::Stopped)
    }

    /// Closes the pages of a body in a thread; returns whether the engine owns the descriptor now.
    pub fn close_pages(&self, pages: RawFd) -> bool {
        let Some(thread) = self.threads.iter().min_by_key(|thread| thread.burden()) else {
            return false;
        };
        match thread.inbox.send(Command::ClosePages(sys::adopt(pages))) {
            Err(Command::ClosePages(pages)) => {
                sys::give_back(pages);
                false
            }
            _ => true,
        }
    }

    /// Lets go of a body; its end is told as an event. For a body that has ended nothing happens.
    pub fn end_write(&self, id: u64) {
        let thread = lock(&self.written).get(&id).map(|written| written.thread);
        if let Some(thread) = thread {
            let _ = self.threads[thread as usize].inbox.send(Command::EndWrite(id));
        }
    }

    /// Returns how much of a body the kernel has taken; None after its last event was taken.
    pub fn written(&self, id: u64) -> Option<u64> {
        lock(&self.written).get(&id).map(|written| written.position())
    }

    /// Adds reasons not to read a direction; up to one read may still pass. The engine's own reason is left alone.
    pub fn pause(&self, pair: u64, direction: usize, reasons: u32) {
        if let Some(stats) = self.stats(pair) {
            stats.lanes[direction].pause(reasons & !PAUSED_BY_WATCH);
        }
    }

    /// Removes reasons not to read a direction; reading begins again when none is left.
    pub fn resume(&self, pair: u64, direction: usize, reasons: u32) {
        let Some(stats) = self.stats(pair) else {
            return;
        };
        if stats.lanes[direction].resume(reasons & !PAUSED_BY_WATCH) {
            self.send(pair, Command::Look(pair));
        }
    }

    /// Answers to which slot the PRODUCER of a question belongs.
    pub fn assign(&self, pair: u64, generation: u64, slot: u32) {
        if let Some(books) = &self.books {
            self.send(pair, Command::Assign(pair, generation, Hold::new(books, slot)));
        }
    }

    /// Takes the topic of a question about a PRODUCER; None if it is over.
    pub fn take_topic(&self, pair: u64, generation: u64) -> Option<Vec<u8>> {
        self.stats(pair)?.take_topic(generation)
    }

    /// Returns what the client of a pair has sent.
    pub fn seen_of(&self, pair: u64) -> u32 {
        self.stats(pair).map_or(0, |stats| stats.seen())
    }

    /// Returns the bytes that waited to be read from the client at the last call; the thread takes another look.
    pub fn unread_of(&self, pair: u64) -> u64 {
        self.send(pair, Command::Measure(pair));
        self.stats(pair).map_or(0, |stats| stats.queued())
    }

    /// Passes a command to the pair's thread; for a pair that has ended, or never was, nothing happens.
    pub fn send(&self, pair: u64, command: Command) {
        if let Some(stats) = self.stats(pair) {
            // A thread that has ended has told of the end of all its pairs.
            let _ = self.threads[stats.thread as usize].inbox.send(command);
        }
    }

    fn stats(&self, pair: u64) -> Option<Arc<Stats>> {
        lock(&self.known).get(&pair).cloned()
    }

    /// Returns how many descriptors a thread watches, as the kernel tells (proc(5), fdinfo).
    #[cfg(test)]
    pub fn watched(&self, index: usize) -> usize {
        use std::os::fd::AsRawFd;
        let fd = self.threads[index].epoll.as_raw_fd();
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
        info.lines().filter(|line| line.starts_with("tfd:")).count()
    }

    /// Returns how busy the threads are.
    #[cfg(test)]
    pub fn burdens(&self) -> Vec<(u32, usize)> {
        self.threads.iter().map(|thread| thread.burden()).collect()
    }

    /// Passes a command to a thread of this number.
    #[cfg(test)]
    pub fn tell_thread(&self, index: usize, command: Command) {
        let _ = self.threads[index].inbox.send(command);
    }

    /// Takes the oldest events. A pair, or a body, is forgotten with its last.
    pub fn events(&self, most: usize) -> Vec<(Event, String)> {
        let failure = |event: &Event| match event.kind {
            Kind::Ended => lock(&self.known).remove(&event.pair)?.failure.get().cloned(),
            Kind::BodyEnded => {
                lock(&self.written).remove(&event.pair);
                None
            }
            _ => None,
        };
        let told = |event| (event, failure(&event).unwrap_or_default());
        self.outbox.take(most).into_iter().map(told).collect()
    }

    /// Returns the records of the first `most` pairs with an id above `after`, one behind the other. Slices of one
    /// snapshot are of different moments.
    pub fn snapshot(&self, after: u64, most: usize) -> Vec<u8> {
        let now = self.clock.now();
        let known = lock(&self.known);
        let mut records = Vec::with_capacity(most.min(known.len()));
        for stats in known.range((Excluded(after), Unbounded)).take(most).map(|(_, stats)| stats) {
            let mut record = [0; RECORD_BYTES];
            stats.record(now).write(&mut record);
            records.push(record);
        }
        records.into_flattened()
    }

    /// Returns the record of one pair; None after its last event was taken.
    pub fn snapshot_of(&self, pair: u64) -> Option<Record> {
        self.stats(pair).map(|stats| stats.record(self.clock.now()))
    }

    /// Returns the numbers of the relay pool, if it has a limit.
    pub fn pool_record(&self) -> Option<PoolRecord> {
        self.pool.as_deref().map(Pool::record)
    }

    /// Returns the kernel memory of all sockets towards brokers, and of all towards clients, as of the last second.
    pub fn socket_memory(&self) -> (u64, u64) {
        let known = lock(&self.known);
        let add = |(brokers, clients), stats: &Arc<Stats>| (brokers + stats.weight(1), clients + stats.weight(0));
        known.values().fold((0, 0), add)
    }

    /// Says whether the kernel memory of all sockets is short: windows are narrowed then, and none is widened.
    pub fn set_tight(&self, tight: bool) {
        if let Some(windows) = &self.windows {
            windows.set_tight(tight);
        }
    }

    /// Returns the pairs whose sockets hold most: those first that hold more than they moved in a second.
    pub fn heaviest(&self, most: usize) -> Vec<SocketLoad> {
        let load = |stats: &Arc<Stats>| (stats.id, stats.weight(0) + stats.weight(1), stats.moved_lately());
        let mut loads: Vec<SocketLoad> = lock(&self.known).values().map(load).collect();
        loads.sort_unstable_by_key(|(_, bytes, moved)| (moved >= bytes, Reverse(*bytes)));
        loads.truncate(most);
        loads
    }

    /// Returns the part of it that was received and is not read: from brokers, and from clients.
    pub fn received_memory(&self) -> (u64, u64) {
        let known = lock(&self.known);
        let add = |(brokers, clients), stats: &Arc<Stats>| (brokers + stats.received(1), clients + stats.received(0));
        known.values().fold((0, 0), add)
    }

    /// Returns for each thread the ms since it last went round its loop.
    pub fn beats(&self) -> Vec<u64> {
        let now = self.clock.now();
        self.threads.iter().map(|thread| now.saturating_sub(thread.beat.load(Relaxed))).collect()
    }

    /// Returns for each thread how often it has gone round its loop: what a thread that has nothing to do costs.
    pub fn rounds(&self) -> Vec<u64> {
        self.threads.iter().map(|thread| thread.rounds.load(Relaxed)).collect()
    }

    /// Ends all pairs and joins the threads; a second call does nothing. In a process that was forked nothing is
    /// touched: the threads are the parent's, and joining them would wait for ever.
    pub fn stop(&self) {
        let handles = std::mem::take(&mut *lock(&self.handles));
        if process::id() != self.process {
            std::mem::forget(handles);
            return;
        }
        for thread in &self.threads {
            let _ = thread.inbox.send(Command::Stop);
        }
        for handle in handles {
            // Its panic was told of as an event.
            let _ = handle.join();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}
