//! The relay pool (KIP-72): one soft limit for all bytes that were read and have not left, of all threads together.
//!
//! Rule: what the receiver takes at once is never charged. While anything is free and nobody waits, a direction reads
//! as much as it likes; so the pool is passed by at most one read of each thread. Otherwise a direction reads what the
//! sink's send queue has room for, so that nothing of it is left over, or else waits. Those that wait are read in
//! turns: one read each, in the order of their coming, from a random place of the line on.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use super::direction::Ends;
use super::queue::lock;
use super::sealed::sealed_bytes;
use super::stats::Lane;
use super::sys;
use super::worker::Clock;

/// Reading stops because the pool is used up and the receiver takes nothing.
pub const PAUSED_BY_POOL: u32 = 2;
/// Turns that a thread gives in one round of its loop.
pub const TURNS_A_ROUND: usize = 64;
/// The line is tidied when it has this many more tickets than there are waiters.
const STALE_TICKETS: usize = 64;

/// How often and how long something was the case: `count` cases now, which `sum` makes a time in ms.
#[derive(Default)]
struct Span {
    count: i64,
    sum: i64,
}

impl Span {
    fn begin(&mut self, now: u64) {
        self.count += 1;
        self.sum += now as i64;
    }

    fn end(&mut self, now: u64) {
        self.count -= 1;
        self.sum -= now as i64;
    }

    /// Returns the ms so far, those of what still is the case included.
    fn millis(&self, now: u64) -> u64 {
        u64::try_from(self.count * now as i64 - self.sum).unwrap_or(0)
    }
}

#[derive(Default)]
struct Books {
    muted: Span,
    depleted: Span,
}

/// Where a thread waits for memory.
struct Door {
    waits: AtomicBool,
    bell: OwnedFd,
}

/// The numbers of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolRecord {
    pub limit: u64,
    pub used: u64,
    pub muted: u64,
    pub muted_ms: u64,
    pub overshoots: u64,
    pub depleted_ms: u64,
}

/// What all threads share.
pub struct Pool {
    limit: i64,
    /// Nothing at all is read above this: the kernel took less than it had room for.
    hard: i64,
    used: AtomicI64,
    /// Directions that wait, of all doors.
    waiting: AtomicUsize,
    /// One for each thread.
    doors: Vec<Door>,
    next_door: AtomicUsize,
    overshoots: AtomicU64,
    /// Changed on the slow path only: when a direction is muted, and when the pool runs empty.
    books: Mutex<Books>,
    clock: Clock,
}

impl Pool {
    /// Makes a pool that is empty, with one door for each of `threads`.
    pub fn new(limit: u64, threads: usize, buffer_bytes: usize, clock: Clock) -> io::Result<Self> {
        let mut doors = Vec::new();
        for _ in 0..threads {
            doors.push(Door { waits: AtomicBool::new(false), bell: sys::eventfd()? });
        }
        let reads = (threads * sealed_bytes(buffer_bytes)) as i64;
        Ok(Pool {
            limit: limit as i64,
            hard: limit as i64 + reads,
            used: AtomicI64::new(0),
            waiting: AtomicUsize::new(0),
            doors,
            next_door: AtomicUsize::new(0),
            overshoots: AtomicU64::new(0),
            books: Mutex::default(),
            clock,
        })
    }

    /// Returns the descriptor that becomes readable when a door may give turns.
    pub fn bell(&self, door: usize) -> RawFd {
        self.doors[door].bell.as_raw_fd()
    }

    /// Returns whether anything is free.
    pub fn free(&self) -> bool {
        self.used.load(SeqCst) < self.limit
    }

    /// Returns whether reads must ask for room: nothing is free, or others wait.
    pub fn scarce(&self) -> bool {
        !self.free() || self.waiting.load(SeqCst) > 0
    }

    /// Returns whether even reads of what the sink has room for have to wait.
    fn exhausted(&self) -> bool {
        self.used.load(SeqCst) >= self.hard
    }

    /// Books that somebody who held `before` bytes holds `after`.
    pub fn change(&self, before: u64, after: u64) {
        let change = after as i64 - before as i64;
        let was = self.used.fetch_add(change, SeqCst);
        let (had, has) = (was < self.limit, was + change < self.limit);
        if had && !has {
            if was + change > self.limit {
                self.overshoots.fetch_add(1, SeqCst);
            }
            let now = self.clock.now();
            lock(&self.books).depleted.begin(now);
        } else if has && !had {
            let now = self.clock.now();
            lock(&self.books).depleted.end(now);
            self.ring();
        }
    }

    /// Rings at the next door where somebody waits, each in its turn.
    pub fn ring(&self) {
        if self.waiting.load(SeqCst) == 0 {
            return;
        }
        let first = self.next_door.fetch_add(1, SeqCst);
        for step in 0..self.doors.len() {
            let door = &self.doors[(first + step) % self.doors.len()];
            if door.waits.load(SeqCst) {
                sys::wake(&door.bell);
                return;
            }
        }
    }

    /// Books that so many directions wait at a door, `before` until now.
    pub fn wait_at(&self, door: usize, before: usize, after: usize) {
        let now = self.clock.now();
        let mut books = lock(&self.books);
        for _ in before..after {
            books.muted.begin(now);
        }
        for _ in after..before {
            books.muted.end(now);
        }
        drop(books);
        self.doors[door].waits.store(after > 0, SeqCst);
        if after > before {
            self.waiting.fetch_add(after - before, SeqCst);
        } else {
            self.waiting.fetch_sub(before - after, SeqCst);
        }
    }

    /// Reads all numbers; times include what still lasts.
    pub fn record(&self) -> PoolRecord {
        let books = lock(&self.books);
        let now = self.clock.now();
        PoolRecord {
            limit: self.limit as u64,
            used: u64::try_from(self.used.load(SeqCst)).unwrap_or(0),
            muted: u64::try_from(books.muted.count).unwrap_or(0),
            muted_ms: books.muted.millis(now),
            overshoots: self.overshoots.load(SeqCst),
            depleted_ms: books.depleted.millis(now),
        }
    }
}

/// A thread's part of the pool: the line of its directions that wait.
pub struct Share {
    pool: Arc<Pool>,
    door: usize,
    /// The kernel's bound for unsent bytes of a socket, 0 for none.
    unsent_bytes: usize,
    line: VecDeque<u64>,
    waiters: HashMap<u64, (u64, usize)>,
    tickets: u64,
    /// Nobody of this line has had a turn yet.
    fresh: bool,
    random: u64,
}

impl Share {
    /// Makes the share of the thread with this number.
    pub fn new(pool: Arc<Pool>, door: usize, unsent_bytes: usize) -> Self {
        let random = (pool.clock.micros() ^ ((door as u64 + 1) << 40)) | 1;
        let (line, waiters) = (VecDeque::new(), HashMap::new());
        Share { pool, door, unsent_bytes, line, waiters, tickets: 0, fresh: true, random }
    }

    /// Returns whether somebody waits and something is free.
    pub fn due(&self) -> bool {
        !self.waiters.is_empty() && self.pool.free()
    }

    /// Takes the next direction whose turn it is to read once: pair and number. Nobody while nothing is free.
    pub fn admit(&mut self) -> Option<(u64, usize)> {
        if !self.due() {
            return None;
        }
        if self.fresh {
            self.fresh = false;
            // The same would be first each time that memory comes back, if the line began at its beginning.
            let start = self.random_below(self.line.len());
            self.line.rotate_left(start);
        }
        while let Some(ticket) = self.line.pop_front() {
            if let Some(waiter) = self.leave(ticket) {
                return Some(waiter);
            }
        }
        None
    }

    /// Has another thread go on if something is still free and nobody waits here.
    pub fn hand_on(&self) {
        if self.waiters.is_empty() && self.pool.free() {
            self.pool.ring();
        }
    }

    fn enter(&mut self, pair: u64, number: usize) -> u64 {
        self.tickets += 1;
        if self.waiters.is_empty() {
            self.line.clear();
            self.fresh = true;
        }
        let before = self.waiters.len();
        self.waiters.insert(self.tickets, (pair, number));
        self.line.push_back(self.tickets);
        if self.line.len() > 2 * self.waiters.len() + STALE_TICKETS {
            self.line.retain(|ticket| self.waiters.contains_key(ticket));
        }
        self.pool.wait_at(self.door, before, before + 1);
        self.tickets
    }

    fn leave(&mut self, ticket: u64) -> Option<(u64, usize)> {
        let waiter = self.waiters.remove(&ticket)?;
        self.pool.wait_at(self.door, self.waiters.len() + 1, self.waiters.len());
        Some(waiter)
    }

    fn random_below(&mut self, limit: usize) -> usize {
        // xorshift64: any spread does.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % limit.max(1) as u64) as usize
    }
}

/// Whether one direction waits for memory, and whether it is its turn.
#[derive(Default)]
pub struct Mute {
    /// Its place in the line of its thread; 0 while it does not wait.
    ticket: u64,
    granted: bool,
}

impl Mute {
    /// Returns how much may be read now: 0 says that the direction waits for memory, or for room at its sink.
    pub fn allowance(&mut self, of: (u64, usize), lane: &Lane, ends: &mut impl Ends, share: &mut Share) -> usize {
        if std::mem::take(&mut self.granted) || !share.pool.scarce() {
            return usize::MAX;
        }
        let room = if share.pool.exhausted() { 0 } else { ends.room(share.unsent_bytes) };
        if room > 0 {
            self.end(lane, share);
        } else if self.ticket == 0 {
            lane.pause(PAUSED_BY_POOL);
            self.ticket = share.enter(of.0, of.1);
        }
        room
    }

    /// Begins the direction's turn: one read, however large.
    pub fn grant(&mut self, lane: &Lane) {
        self.ticket = 0;
        self.granted = true;
        lane.resume(PAUSED_BY_POOL);
    }

    /// Ends the direction's turn if it did not read: another reason pauses it, or nothing was there.
    pub fn expire(&mut self) {
        self.granted = false;
    }

    /// Ends the wait.
    pub fn end(&mut self, lane: &Lane, share: &mut Share) {
        if self.ticket != 0 {
            share.leave(std::mem::take(&mut self.ticket));
            lane.resume(PAUSED_BY_POOL);
        }
    }
}
