//! One thread of the engine: its epoll set, its pairs, whose turn it is, and its clock.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::AcqRel, Ordering::Relaxed};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use super::body::{self, Body};
use super::direction::Turn;
use super::pair::{Outcome, Over, Pair};
use super::pipes::PipePool;
use super::pool::{Pool, Share, TURNS_A_ROUND};
use super::queue::{Cause, Command, CommandQueue, Event, EventQueue, Joined, Kind};
use super::slots::{Hold, Waiting};
use super::stats::Stats;
use super::sys;
use super::weights::Sweep;

/// Tokens of epoll entries: twice a pair's id plus the side, twice a body's id, or one of these.
pub const WOKEN: u64 = u64::MAX;
/// A socket whose pair the thread has not taken yet.
pub const NOT_YET: u64 = u64::MAX - 1;
/// Memory of the relay pool is free.
const RUNG: u64 = u64::MAX - 2;

const EVENTS_A_ROUND: usize = 256;
/// A thread that waits wakes this often, to say that it lives.
const BEAT_MS: u64 = 1_000;
const METER_MICROS: u64 = 500_000;
/// Thousandths of a thread's time; smaller differences between threads are none.
const LOAD_STEP: u32 = 250;
/// A pair that joined since the load was measured is taken for this much of it: a crowd that comes at once would else
/// go to one thread, and pairs stay where they are.
const NEWCOMER_LOAD: u32 = 60;

/// The engine's clock: ms since it began.
#[derive(Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    /// Begins at zero.
    pub fn start() -> Self {
        Clock(Instant::now())
    }

    /// Returns the seconds of the monotonic clock at the start.
    pub fn epoch(self) -> f64 {
        sys::monotonic_seconds() - self.micros() as f64 / 1e6
    }

    /// Returns the ms since the start.
    pub fn now(self) -> u64 {
        self.micros() / 1_000
    }

    /// Returns the microseconds since the start.
    pub fn micros(self) -> u64 {
        self.0.elapsed().as_micros() as u64
    }
}

/// What the engine and one thread share.
pub struct Shared {
    pub index: u32,
    pub epoll: OwnedFd,
    pub inbox: CommandQueue,
    pub outbox: Arc<EventQueue>,
    pub clock: Clock,
    /// When the thread last went round its loop.
    pub beat: AtomicU64,
    /// How often it has.
    pub rounds: AtomicU64,
    /// Pairs of the thread, those on their way to it included.
    pub pairs: AtomicUsize,
    /// Bodies that the thread writes, those on their way to it included.
    pub bodies: AtomicUsize,
    /// Thousandths of the last time that the thread did not wait.
    pub load: AtomicU32,
    /// Pairs that joined since that was measured.
    pub newcomers: AtomicU32,
    /// The relay pool, and the kernel's bound for unsent bytes of a socket; None without a limit.
    pub pool: Option<(Arc<Pool>, usize)>,
    /// The thread was told of a change of rates, and has not looked yet.
    pub rates_told: AtomicBool,
}

impl Waiting for Shared {
    fn rates_changed(&self) {
        if !self.rates_told.swap(true, AcqRel) {
            let _ = self.inbox.send(Command::Rates);
        }
    }
}

impl Shared {
    /// Says which of two threads is to have the next pair: the one that is clearly less busy, else the one with fewer
    /// pairs and bodies. Those that come together have not shown yet how busy they are.
    pub fn burden(&self) -> (u32, usize) {
        let newcomers = self.newcomers.load(Relaxed).min(1_000_000);
        let load = self.load.load(Relaxed) + newcomers * NEWCOMER_LOAD;
        (load / LOAD_STEP, self.pairs.load(Relaxed) + self.bodies.load(Relaxed))
    }
}

/// How much of its time a thread waits.
#[derive(Default)]
struct Meter {
    since: u64,
    waited: u64,
}

impl Meter {
    /// Counts a wait, and sets the thread's load when enough time has passed; times in microseconds.
    fn waited(&mut self, began: u64, ended: u64, shared: &Shared) {
        self.waited += ended - began;
        let whole = ended - self.since;
        if whole >= METER_MICROS {
            shared.load.store((whole.saturating_sub(self.waited) * 1_000 / whole) as u32, Relaxed);
            shared.newcomers.store(0, Relaxed);
            *self = Meter { since: ended, waited: 0 };
        }
    }
}

/// Ids count up: any spreading of their bits does, and a strong hash would cost more than the rest of a look-up.
#[derive(Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = id.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }
}

type ById<T> = HashMap<u64, Box<T>, BuildHasherDefault<IdHasher>>;
/// The pairs of a thread, by their ids.
pub type Pairs = ById<Pair>;

/// The state of a thread.
struct Worker {
    shared: Arc<Shared>,
    pairs: ById<Pair>,
    bodies: ById<Body>,
    run: VecDeque<u64>,
    timers: BinaryHeap<Reverse<(u64, u64)>>,
    buffer: Vec<u8>,
    pipes: PipePool,
    pool: Option<Share>,
    sweep: Sweep,
    events: Vec<Event>,
    commands: Vec<Command>,
    ready: Vec<sys::EpollEvent>,
    now: u64,
    meter: Meter,
    /// Pairs that wait for tokens.
    slowed: HashSet<u64>,
    stopping: bool,
    /// The pair or body that a test has asked a panic of.
    panics: Option<u64>,
}

/// Lends what a turn needs: a macro, so that the pairs may be borrowed beside it.
macro_rules! turn {
    ($worker:expr) => {
        &mut Turn {
            buffer: &mut $worker.buffer,
            pipes: &mut $worker.pipes,
            pool: &mut $worker.pool,
            events: &mut $worker.events,
            now: $worker.now,
        }
    };
}

/// Runs what bytes of a peer may make panic: that ends one pair or body, not the thread.
fn caught<T>(panics: bool, act: impl FnOnce() -> T) -> thread::Result<T> {
    catch_unwind(AssertUnwindSafe(|| {
        assert!(!panics, "a test asked for this panic");
        act()
    }))
}

/// Runs a thread until it is told to stop. A panic outside a pair ends the thread, and is told.
pub fn run(shared: Arc<Shared>, buffer_bytes: usize) {
    let ended = catch_unwind(AssertUnwindSafe(|| Worker::new(Arc::clone(&shared), buffer_bytes).serve()));
    let rest = shared.inbox.close();
    let mut events = Vec::new();
    for command in rest {
        match command {
            Command::Join(joined) => {
                // Dropping it closes both sockets.
                let values = [Cause::ByPython as u64, 0, 0, 0, 0];
                events.push(Event { kind: Kind::Ended, pair: joined.stats.id, values });
            }
            Command::Write(body) => events.push(body.over(Some(Cause::ByPython), 0, &shared.epoll)),
            _ => {}
        }
    }
    if !matches!(ended, Ok(Ok(()))) {
        let values = [u64::from(shared.index), 0, 0, 0, 0];
        events.push(Event { kind: Kind::ThreadDied, pair: 0, values });
    }
    shared.outbox.append(&mut events);
}

impl Worker {
    fn new(shared: Arc<Shared>, buffer_bytes: usize) -> Self {
        let door = shared.index as usize;
        let pool = shared.pool.as_ref().map(|(pool, unsent)| Share::new(Arc::clone(pool), door, *unsent));
        Worker {
            shared,
            pool,
            sweep: Sweep::default(),
            pairs: ById::default(),
            bodies: ById::default(),
            run: VecDeque::new(),
            timers: BinaryHeap::new(),
            buffer: vec![0; buffer_bytes],
            pipes: PipePool::new(buffer_bytes),
            events: Vec::new(),
            commands: Vec::new(),
            ready: vec![sys::NO_EVENT; EVENTS_A_ROUND],
            now: 0,
            meter: Meter::default(),
            slowed: HashSet::new(),
            stopping: false,
            panics: None,
        }
    }

    fn serve(mut self) -> io::Result<()> {
        if let Some((pool, _)) = &self.shared.pool {
            let bell = pool.bell(self.shared.index as usize);
            sys::epoll_add(&self.shared.epoll, bell, libc::EPOLLIN as u32 | sys::QUIET, RUNG)?;
        }
        while !self.stopping {
            self.round()?;
        }
        let all: Vec<u64> = self.pairs.keys().copied().collect();
        for id in all {
            self.abort(id);
        }
        let all: Vec<u64> = self.bodies.keys().copied().collect();
        for id in all {
            self.end_body(id, Some(Cause::ByPython), 0);
        }
        Ok(())
    }

    /// Waits for events, and gives one turn to each pair that has something to do.
    fn round(&mut self) -> io::Result<()> {
        let began = self.shared.clock.micros();
        let timeout = self.timeout(began / 1_000);
        let count = sys::epoll_wait(&self.shared.epoll, &mut self.ready, timeout)?;
        let ended = self.shared.clock.micros();
        self.meter.waited(began, ended, &self.shared);
        self.now = ended / 1_000;
        self.shared.beat.store(self.now, Relaxed);
        // Written by this thread alone: no bus lock.
        self.shared.rounds.store(self.shared.rounds.load(Relaxed) + 1, Relaxed);
        let mut woken = false;
        for index in 0..count {
            let sys::EpollEvent { events, u64: token } = self.ready[index];
            match token {
                WOKEN => woken = true,
                NOT_YET | RUNG => {}
                _ => self.mark(token, events),
            }
        }
        if woken {
            self.obey();
        }
        self.fire_timers();
        for _ in 0..self.run.len() {
            if let Some(id) = self.run.pop_front() {
                self.give_turn(id);
            }
        }
        self.give_pool_turns();
        self.sweep.step(&mut self.pairs, self.now);
        Ok(())
    }

    /// Has directions that wait for memory of the relay pool read once each, while there is any.
    fn give_pool_turns(&mut self) {
        for _ in 0..TURNS_A_ROUND {
            let Some((id, number)) = self.pool.as_mut().and_then(Share::admit) else {
                break;
            };
            if let Some(pair) = self.pairs.get_mut(&id) {
                pair.grant(number);
                self.give_turn(id);
            }
            if let Some(pair) = self.pairs.get_mut(&id) {
                pair.expire(number);
            }
        }
        if let Some(share) = &self.pool {
            share.hand_on();
        }
    }

    fn timeout(&self, now: u64) -> i32 {
        if !self.run.is_empty() || self.sweep.under_way() || self.pool.as_ref().is_some_and(Share::due) {
            return 0;
        }
        let timer = self.timers.peek().map_or(u64::MAX, |Reverse((at, _))| at.saturating_sub(now));
        timer.min(BEAT_MS) as i32
    }

    fn mark(&mut self, token: u64, events: u32) {
        if let Some(pair) = self.pairs.get_mut(&(token / 2)) {
            pair.ready((token % 2) as usize, events);
            if !pair.queued {
                pair.queued = true;
                self.run.push_back(token / 2);
            }
        } else if let Some(body) = self.bodies.get_mut(&(token / 2)) {
            if !body.queued {
                body.queued = true;
                self.run.push_back(token / 2);
            }
        }
    }

    fn queue(&mut self, id: u64) {
        self.mark(2 * id, 0);
    }

    fn give_turn(&mut self, id: u64) {
        let Some(pair) = self.pairs.get_mut(&id) else {
            return self.give_body_turn(id);
        };
        pair.queued = false;
        let panics = self.panics == Some(id);
        let turn = turn!(self);
        let outcome = caught(panics, || pair.turn(turn));
        match outcome {
            Ok(Outcome::Over(over)) => self.end(id, over),
            Ok(Outcome::Again) => {
                self.queue(id);
                self.set_timer(id);
            }
            Ok(Outcome::Rest) => self.set_timer(id),
            Err(_) => self.end(id, Over { cause: Cause::Internal, errno: 0, abrupt: true }),
        }
        self.shared.outbox.append(&mut self.events);
    }

    fn give_body_turn(&mut self, id: u64) {
        let Some(body) = self.bodies.get_mut(&id) else {
            return;
        };
        body.queued = false;
        let panics = self.panics == Some(id);
        let events = &mut self.events;
        let outcome = caught(panics, || body.turn(events));
        match outcome {
            Ok(body::Outcome::Again) => self.queue(id),
            Ok(body::Outcome::Full(retry_ms)) => self.await_room(id, retry_ms),
            Ok(body::Outcome::Whole) => self.end_body(id, None, 0),
            Ok(body::Outcome::Failed(errno)) => self.end_body(id, Some(Cause::ClientReset), errno),
            Err(_) => self.end_body(id, Some(Cause::Internal), 0),
        }
        self.shared.outbox.append(&mut self.events);
    }

    /// Watches for room in a body's socket: told once per change, at once if there is room by now.
    fn await_room(&mut self, id: u64, retry_ms: u64) {
        let Some(body) = self.bodies.get_mut(&id) else {
            return;
        };
        if retry_ms > 0 && !body.retrying {
            body.retrying = true;
            self.timers.push(Reverse((self.now + retry_ms, id)));
        }
        if body.watched {
            return;
        }
        match sys::epoll_add(&self.shared.epoll, body.socket.as_raw_fd(), sys::ROOM, 2 * id) {
            Ok(()) => body.watched = true,
            Err(error) => self.end_body(id, Some(Cause::ClientReset), error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }

    fn end_body(&mut self, id: u64, cause: Option<Cause>, errno: i32) {
        if let Some(body) = self.bodies.remove(&id) {
            self.events.push(body.over(cause, errno, &self.shared.epoll));
            self.shared.bodies.fetch_sub(1, Relaxed);
            self.shared.outbox.append(&mut self.events);
        }
    }

    fn set_timer(&mut self, id: u64) {
        let Some(pair) = self.pairs.get_mut(&id) else {
            return;
        };
        if pair.slowed() {
            self.slowed.insert(id);
        } else if !self.slowed.is_empty() {
            self.slowed.remove(&id);
        }
        if let Some(at) = pair.wants_timer() {
            if pair.timer == 0 || at < pair.timer {
                pair.timer = at;
                self.timers.push(Reverse((at, id)));
            }
        }
    }

    fn fire_timers(&mut self) {
        while let Some(Reverse((at, id))) = self.timers.peek().copied() {
            if at > self.now {
                return;
            }
            self.timers.pop();
            if let Some(pair) = self.pairs.get_mut(&id) {
                pair.timer = 0;
            } else if let Some(body) = self.bodies.get_mut(&id) {
                body.retrying = false;
            }
            self.queue(id);
        }
    }

    fn obey(&mut self) {
        let shared = Arc::clone(&self.shared);
        let mut commands = std::mem::take(&mut self.commands);
        shared.inbox.take(&mut commands);
        for command in commands.drain(..) {
            match command {
                Command::Join(joined) => self.join(*joined),
                Command::Look(id) => self.queue(id),
                Command::Pass(id, generation) => {
                    if self.guarded(id, |pair, _| pair.answered(generation)) == Some(true) {
                        self.queue(id);
                    }
                }
                Command::Close(id, stall_ms) => {
                    if self.guarded(id, |pair, turn| pair.close(stall_ms, turn.now)).is_some() {
                        self.queue(id);
                    }
                }
                Command::Abort(id) => self.abort(id),
                Command::Write(body) => {
                    let id = body.written.id;
                    self.bodies.insert(id, body);
                    self.queue(id);
                }
                Command::ClosePages(pages) => drop(pages),
                Command::EndWrite(id) => self.end_body(id, Some(Cause::ByPython), 0),
                Command::Assign(id, generation, hold) => self.assign(id, generation, hold),
                Command::Drip(id, direction, whole_read) => {
                    if let Some(pair) = self.pairs.get_mut(&id) {
                        pair.drip(direction, whole_read);
                        self.queue(id);
                    }
                }
                Command::Measure(id) => {
                    if let Some(pair) = self.pairs.get(&id) {
                        pair.measure();
                    }
                }
                Command::Rates => {
                    // Cleared first: a change from now on is told anew.
                    self.shared.rates_told.swap(false, AcqRel);
                    let slowed: Vec<u64> = self.slowed.iter().copied().collect();
                    slowed.into_iter().for_each(|id| self.queue(id));
                }
                Command::Stop => self.stopping = true,
                #[cfg(test)]
                Command::Cpu(answer) => answer.send(sys::thread_cpu_micros()).unwrap(),
                #[cfg(test)]
                Command::Hold(until) => drop(until.recv()),
                #[cfg(test)]
                Command::Panic(id) => {
                    assert!(id != 0, "a test asked for this panic, too");
                    self.panics = Some(id);
                    self.queue(id);
                }
            }
        }
        self.commands = commands;
    }

    /// Lets a pair do something outside its turn. A panic ends the pair, as one in its turn does: what came from its
    /// peers is scanned here, too.
    fn guarded<T>(&mut self, id: u64, act: impl FnOnce(&mut Pair, &mut Turn<'_>) -> T) -> Option<T> {
        let pair = self.pairs.get_mut(&id)?;
        let panics = self.panics == Some(id);
        let turn = turn!(self);
        let done = caught(panics, || act(pair, turn));
        if done.is_err() {
            self.end(id, Over { cause: Cause::Internal, errno: 0, abrupt: true });
        }
        done.ok()
    }

    fn join(&mut self, joined: Joined) {
        let stats = Arc::clone(&joined.stats);
        let id = stats.id;
        let panics = self.panics == Some(id);
        let turn = turn!(self);
        // The bytes that came with the handshakes are scanned.
        let made = caught(panics, || Pair::new(joined, turn));
        let Ok(pair) = made else {
            return self.never_was(&stats);
        };
        // Python's thread has added both sockets without interest: what they had to say since then is told now.
        let [client, broker] = pair.fds();
        let watched = sys::epoll_modify(&self.shared.epoll, client, sys::RELAYED, 2 * id)
            .and_then(|()| sys::epoll_modify(&self.shared.epoll, broker, sys::RELAYED, 2 * id + 1));
        self.pairs.insert(id, Box::new(pair));
        match watched {
            Ok(()) => self.queue(id),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                self.end(id, Over { cause: Cause::Internal, errno, abrupt: true });
            }
        }
    }

    /// Tells of the end of a pair that could not be made: both sockets were closed on the way.
    fn never_was(&mut self, stats: &Stats) {
        stats.lanes.iter().for_each(|lane| lane.set_held(0, 0));
        self.events.push(Event { kind: Kind::Ended, pair: stats.id, values: [Cause::Internal as u64, 0, 0, 0, 0] });
        self.shared.pairs.fetch_sub(1, Relaxed);
        self.shared.outbox.append(&mut self.events);
    }

    fn assign(&mut self, id: u64, generation: u64, hold: Hold) {
        if self.guarded(id, |pair, turn| pair.assigned(generation, hold, turn)) == Some(true) {
            self.queue(id);
        }
        self.shared.outbox.append(&mut self.events);
    }

    fn abort(&mut self, id: u64) {
        if let Some(over) = self.guarded(id, |pair, _| pair.abort(Cause::ByPython)) {
            self.end(id, over);
        }
    }

    fn end(&mut self, id: u64, over: Over) {
        self.slowed.remove(&id);
        if let Some(pair) = self.pairs.remove(&id) {
            pair.over(over, &self.shared.epoll, turn!(self));
            self.shared.pairs.fetch_sub(1, Relaxed);
            self.shared.outbox.append(&mut self.events);
        }
    }
}
