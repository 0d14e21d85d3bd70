//! The books of topics that producers send to: counters and token buckets by slot, shared by all threads and Python.
//!
//! Counting is a few relaxed atomics; a slot's lock is taken only while that slot has a limit, and never across a
//! system call. Times are seconds of the monotonic clock.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use super::queue::lock;

/// The slot of everything that has none of its own.
pub const OTHER: u32 = 0;
/// Slots in all, that of `OTHER` left out.
pub const MOST_SLOTS: usize = 65_536;
const CHUNK: usize = 1_024;
const CHUNKS: usize = MOST_SLOTS / CHUNK + 1;
/// A bucket holds the tokens of this long, and these at least: for bytes and for messages.
const CAPACITY_SECONDS: f64 = 0.25;
pub const FLOORS: [f64; 2] = [65_536.0, 64.0];
/// A bucket that ran dry is ready again with the tokens of this long.
const READY_SECONDS: f64 = 0.016;
const MAX_PAUSE_MS: u64 = 5_000;

/// Tokens that come at a rate; a debit may leave a debt, which later tokens pay. Without a limit tokens come at the last
/// rate, and nothing is debited.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    floor: f64,
    rate: f64,
    limited: bool,
    tokens: f64,
    at: f64,
}

impl TokenBucket {
    /// Begins without a limit.
    pub fn new(floor: f64) -> Self {
        TokenBucket { floor, rate: 0.0, limited: false, tokens: 0.0, at: 0.0 }
    }

    fn capacity(&self) -> f64 {
        (CAPACITY_SECONDS * self.rate).max(self.floor)
    }

    fn refill(&mut self, now: f64) {
        if now > self.at {
            self.tokens = (self.tokens + self.rate * (now - self.at)).min(self.capacity());
            self.at = now;
        }
    }

    /// Changes the rate; tokens and debt stay, but for tokens that the new bucket does not hold. The first is full.
    pub fn set_rate(&mut self, rate: Option<f64>, now: f64) {
        self.refill(now);
        self.limited = rate.is_some();
        if let Some(rate) = rate {
            let first = self.rate == 0.0;
            self.rate = rate;
            self.tokens = if first { self.capacity() } else { self.tokens.min(self.capacity()) };
        }
    }

    /// Takes tokens, more than there are if need be; returns whether some are left.
    pub fn take(&mut self, count: f64, now: f64) -> bool {
        if !self.limited {
            return true;
        }
        self.refill(now);
        self.tokens -= count;
        self.tokens > 0.0
    }

    /// Returns when a bucket that ran dry is ready again; a time not after `now` if it is.
    pub fn ready_at(&mut self, now: f64) -> f64 {
        if !self.limited {
            return now;
        }
        self.refill(now);
        now + ((READY_SECONDS * self.rate - self.tokens) / self.rate).max(0.0)
    }
}

/// The books of one topic.
struct Slot {
    bytes: AtomicU64,
    messages: AtomicU64,
    ran_dry: AtomicBool,
    holders: AtomicU32,
    limited: AtomicBool,
    buckets: Mutex<[TokenBucket; 2]>,
}

impl Slot {
    fn new() -> Self {
        Slot {
            bytes: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            ran_dry: AtomicBool::new(false),
            holders: AtomicU32::new(0),
            limited: AtomicBool::new(false),
            buckets: Mutex::new(FLOORS.map(TokenBucket::new)),
        }
    }
}

/// Somebody who waits for tokens, and looks again when a rate changes.
pub trait Waiting: Send + Sync {
    /// Called with no lock held.
    fn rates_changed(&self);
}

/// The books of all slots.
pub struct Books {
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    waiting: Mutex<Vec<Weak<dyn Waiting>>>,
    max_pause_ms: AtomicU64,
    /// Frames that passed because a pause was too long.
    forced: AtomicU64,
    /// PRODUCERs that no slot was asked for, because a connection sent too many of them.
    unasked: AtomicU64,
    /// Connections whose sizes made no sense.
    unreadable: AtomicU64,
}

impl Default for Books {
    fn default() -> Self {
        Books {
            chunks: [const { OnceLock::new() }; CHUNKS],
            waiting: Mutex::default(),
            max_pause_ms: AtomicU64::new(MAX_PAUSE_MS),
            forced: AtomicU64::new(0),
            unasked: AtomicU64::new(0),
            unreadable: AtomicU64::new(0),
        }
    }
}

impl Books {
    fn slot(&self, slot: u32) -> &Slot {
        let slot = if slot as usize > MOST_SLOTS { OTHER } else { slot } as usize;
        let make = || (0..CHUNK).map(|_| Slot::new()).collect();
        &self.chunks[slot / CHUNK].get_or_init(make)[slot % CHUNK]
    }

    /// Counts messages; returns whether the slot has tokens left.
    #[inline]
    pub fn debit(&self, slot: u32, bytes: u64, messages: u64, now: f64) -> bool {
        let slot = self.slot(slot);
        slot.bytes.fetch_add(bytes, Relaxed);
        slot.messages.fetch_add(messages, Relaxed);
        if !slot.limited.load(Relaxed) {
            return true;
        }
        let [by_bytes, by_messages] = &mut *lock(&slot.buckets);
        // Both are debited, whatever the first says.
        let left = by_bytes.take(bytes as f64, now) & by_messages.take(messages as f64, now);
        if !left {
            slot.ran_dry.store(true, Relaxed);
        }
        left
    }

    /// Returns when a slot that ran dry is ready again; a time not after `now` if it is.
    pub fn ready_at(&self, slot: u32, now: f64) -> f64 {
        let slot = self.slot(slot);
        if !slot.limited.load(Relaxed) {
            return now;
        }
        let [by_bytes, by_messages] = &mut *lock(&slot.buckets);
        by_bytes.ready_at(now).max(by_messages.ready_at(now))
    }

    /// Changes the limits of a slot; None is no limit. Whoever waits looks again.
    pub fn set_rate(&self, slot: u32, rates: [Option<f64>; 2], now: f64) {
        let slot = self.slot(slot);
        let mut buckets = lock(&slot.buckets);
        for (bucket, rate) in buckets.iter_mut().zip(rates) {
            bucket.set_rate(rate, now);
        }
        slot.limited.store(rates.iter().any(Option::is_some), Relaxed);
        drop(buckets);
        let waiting: Vec<_> = lock(&self.waiting).iter().filter_map(Weak::upgrade).collect();
        for one in waiting {
            one.rates_changed();
        }
    }

    /// Has `one` told when a rate changes.
    pub fn tell(&self, one: Weak<dyn Waiting>) {
        let mut waiting = lock(&self.waiting);
        waiting.retain(|other| other.strong_count() > 0);
        waiting.push(one);
    }

    /// Returns bytes, messages, whether the slot ran dry since the last call, and its producers.
    pub fn take(&self, slot: u32) -> (u64, u64, bool, u32) {
        let slot = self.slot(slot);
        let ran_dry = slot.ran_dry.swap(false, Relaxed);
        (slot.bytes.load(Relaxed), slot.messages.load(Relaxed), ran_dry, slot.holders.load(Relaxed))
    }

    /// Returns the producers of a slot.
    pub fn producers(&self, slot: u32) -> u32 {
        self.slot(slot).holders.load(Relaxed)
    }

    /// Empties a slot that nobody holds: another topic gets it.
    pub fn clear(&self, slot: u32) {
        let slot = self.slot(slot);
        slot.bytes.store(0, Relaxed);
        slot.messages.store(0, Relaxed);
        slot.ran_dry.store(false, Relaxed);
        slot.limited.store(false, Relaxed);
        *lock(&slot.buckets) = FLOORS.map(TokenBucket::new);
    }

    /// Counts one more producer of the slot.
    pub fn hold(&self, slot: u32) {
        self.slot(slot).holders.fetch_add(1, Relaxed);
    }

    /// Counts one producer less.
    pub fn let_go(&self, slot: u32) {
        self.slot(slot).holders.fetch_sub(1, Relaxed);
    }

    /// Returns how long a pause for a rate may last before one frame passes.
    pub fn max_pause_ms(&self) -> u64 {
        self.max_pause_ms.load(Relaxed)
    }

    /// Changes how long a pause for a rate may last.
    pub fn set_max_pause_ms(&self, ms: u64) {
        self.max_pause_ms.store(ms, Relaxed);
    }

    /// Counts a frame that passed because its pause was too long.
    pub fn count_forced(&self) {
        self.forced.fetch_add(1, Relaxed);
    }

    /// Counts a PRODUCER that no slot was asked for.
    pub fn count_unasked(&self) {
        self.unasked.fetch_add(1, Relaxed);
    }

    /// Counts a connection whose sizes made no sense.
    pub fn count_unreadable(&self) {
        self.unreadable.fetch_add(1, Relaxed);
    }

    /// Returns the three counts: frames that passed after too long a pause, PRODUCERs not asked for, unreadable ones.
    pub fn counts(&self) -> (u64, u64, u64) {
        (self.forced.load(Relaxed), self.unasked.load(Relaxed), self.unreadable.load(Relaxed))
    }
}

/// A producer's place in a slot: given back when dropped, wherever that happens.
pub struct Hold {
    books: Arc<Books>,
    slot: u32,
}

impl Hold {
    /// Takes a place.
    pub fn new(books: &Arc<Books>, slot: u32) -> Self {
        books.hold(slot);
        Hold { books: Arc::clone(books), slot }
    }

    /// Returns the slot.
    pub fn slot(&self) -> u32 {
        self.slot
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.books.let_go(self.slot);
    }
}
