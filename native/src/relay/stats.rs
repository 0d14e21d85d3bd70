//! Counters of a pair, written by its thread and read by Python without a lock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

use super::hand_over::Reasons;
use super::pool::Pool;
use super::queue::lock;

/// Reading stops because frames wait for an answer; the engine's own reason.
pub const PAUSED_BY_WATCH: u32 = 1;
/// Reading stops because of a threshold: Python's reason.
pub const PAUSED_BY_THRESHOLD: u32 = 4;
/// Reading stops because a topic has no tokens left; the engine's own reason where it counts.
pub const PAUSED_BY_RATE: u32 = 8;
/// A drip passes one frame in spite of these.
pub const PAUSES_DRIPPED_THROUGH: u32 = PAUSED_BY_THRESHOLD | PAUSED_BY_RATE;
/// The client has sent a PRODUCER, or what may be one.
pub const PRODUCES: u32 = 1;
/// The client has sent a SUBSCRIBE.
pub const CONSUMES: u32 = 2;

/// Layout of one record of a snapshot, as Python's `struct` writes it.
pub const RECORD: &str = "<QQQQIIIIIIIIQQ";
/// Size of one record.
pub const RECORD_BYTES: usize = 4 * 8 + 8 * 4 + 2 * 8;

/// The counters of one direction.
#[derive(Default)]
pub struct Lane {
    bytes: AtomicU64,
    reads: AtomicU64,
    spliced: AtomicU64,
    held: AtomicU32,
    kept: AtomicU32,
    pauses: Reasons,
    /// Charged for the memory of what is held; None without a limit.
    pool: Option<Arc<Pool>>,
}

impl Drop for Lane {
    /// Gives back what a thread that died has left booked.
    fn drop(&mut self) {
        self.set_held(0, 0);
    }
}

/// Adds to a counter that one thread writes: no bus lock, which a fetch_add would take for each message.
fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(count), Relaxed);
}

impl Lane {
    fn charging(pool: Option<&Arc<Pool>>) -> Self {
        let mut lane = Lane::default();
        lane.pool = pool.cloned();
        lane
    }

    /// Counts one read.
    pub fn count_read(&self, bytes: usize) {
        add(&self.bytes, bytes as u64);
        add(&self.reads, 1);
    }

    /// Counts bytes that were read into a pipe, and so never seen.
    pub fn count_spliced(&self, bytes: usize) {
        add(&self.spliced, bytes as u64);
    }

    /// Returns the bytes read in all.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Returns the reads in all.
    pub fn reads(&self) -> u64 {
        self.reads.load(Relaxed)
    }

    /// Records the bytes that are held for the receiver, and the memory that is kept for them: more, when the receiver
    /// has taken a part.
    pub fn set_held(&self, bytes: usize, kept: usize) {
        let clamp = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        self.held.store(clamp(bytes), Relaxed);
        let (before, after) = (self.kept.load(Relaxed), clamp(kept));
        if before != after {
            self.kept.store(after, Relaxed);
            if let Some(pool) = &self.pool {
                pool.change(u64::from(before), u64::from(after));
            }
        }
    }

    /// Returns the bytes that are held for the receiver.
    pub fn held(&self) -> u64 {
        u64::from(self.held.load(Relaxed))
    }

    /// Returns the memory that is kept for them.
    #[cfg(test)]
    pub fn kept(&self) -> u64 {
        u64::from(self.kept.load(Relaxed))
    }

    /// Adds reasons not to read. Several threads do so: no change may undo another's.
    pub fn pause(&self, reasons: u32) {
        self.pauses.add(reasons);
    }

    /// Removes reasons not to read; returns whether there were some and none is left but those that a drip ignores.
    pub fn resume(&self, reasons: u32) -> bool {
        self.pauses.remove(reasons, PAUSES_DRIPPED_THROUGH)
    }

    /// Returns the reasons not to read.
    pub fn pauses(&self) -> u32 {
        self.pauses.all()
    }
}

/// The number of a question about a PRODUCER, and its topic; most pairs ask none.
type Question = Box<(u64, Vec<u8>)>;

/// The counters of one pair.
pub struct Stats {
    pub id: u64,
    pub thread: u32,
    /// Direction 0 reads the client, 1 the broker.
    pub lanes: [Lane; 2],
    half_closed: AtomicU32,
    asks: AtomicU32,
    moved_at: AtomicU64,
    /// Kernel memory of the sockets, in KiB, of the client's side and of the broker's.
    sockets: [AtomicU32; 2],
    /// Bytes that were read between the last two looks at the sockets.
    moved_lately: AtomicU64,
    /// The part of the sockets' memory that was received and is not read.
    received: [AtomicU32; 2],
    /// Bytes in the kernel that a side has not acknowledged.
    unsent: [AtomicU64; 2],
    seen: AtomicU32,
    queued: AtomicU64,
    /// The question about a PRODUCER that waits, and its topic.
    topic: Mutex<Option<Question>>,
    /// Why the session of a side has failed.
    pub failure: OnceLock<String>,
}

/// The values of one record, in the order of `RECORD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub id: u64,
    pub to_broker_bytes: u64,
    pub to_client_bytes: u64,
    pub client_reads: u64,
    pub held_for_broker: u32,
    pub held_for_client: u32,
    pub pauses_to_broker: u32,
    pub pauses_to_client: u32,
    pub half_closed: u32,
    pub idle_ms: u32,
    pub asks: u32,
    pub thread: u32,
    pub spliced_bytes: u64,
    /// What both sides have still to take; the kernel's part is that of the last look.
    pub untaken_bytes: u64,
}

impl Stats {
    /// Begins at zero; `now` is in ms of the engine's clock.
    pub fn new(id: u64, thread: u32, now: u64) -> Self {
        Stats::charging(None, id, thread, now)
    }

    /// Begins at zero, and charges what is held to a pool.
    pub fn charging(pool: Option<&Arc<Pool>>, id: u64, thread: u32, now: u64) -> Self {
        let lane = || Lane::charging(pool);
        Stats {
            id,
            thread,
            lanes: [lane(), lane()],
            half_closed: AtomicU32::new(0),
            asks: AtomicU32::new(0),
            moved_at: AtomicU64::new(now),
            sockets: Default::default(),
            moved_lately: AtomicU64::new(0),
            received: Default::default(),
            unsent: Default::default(),
            seen: AtomicU32::new(0),
            queued: AtomicU64::new(0),
            topic: Mutex::default(),
            failure: OnceLock::new(),
        }
    }

    /// Records what the client has sent.
    pub fn see(&self, seen: u32) {
        self.seen.store(seen, Relaxed);
    }

    /// Returns what the client has sent.
    pub fn seen(&self) -> u32 {
        self.seen.load(Relaxed)
    }

    /// Records the bytes that wait in the kernel to be read from the client.
    pub fn set_queued(&self, bytes: u64) {
        self.queued.store(bytes, Relaxed);
    }

    /// Returns the bytes that waited in the kernel at the last look.
    pub fn queued(&self) -> u64 {
        self.queued.load(Relaxed)
    }

    /// Records the topic of the PRODUCER that waits.
    pub fn set_topic(&self, generation: u64, topic: Vec<u8>) {
        *lock(&self.topic) = Some(Box::new((generation, topic)));
    }

    /// Takes the topic of a question, once.
    pub fn take_topic(&self, generation: u64) -> Option<Vec<u8>> {
        lock(&self.topic).take_if(|asked| asked.0 == generation).map(|asked| asked.1)
    }

    /// Records that a byte came or left.
    pub fn moved(&self, now: u64) {
        self.moved_at.store(now, Relaxed);
    }

    /// Records that a side (0 client, 1 broker) sent its FIN.
    pub fn half_close(&self, side: usize) {
        self.half_closed.fetch_or(1 << side, Relaxed);
    }

    /// Records the kernel memory of a side's socket.
    pub fn weigh(&self, side: usize, bytes: usize) {
        self.sockets[side].store(u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX), Relaxed);
    }

    /// Returns the kernel memory of a side's socket, as it was at the last look.
    pub fn weight(&self, side: usize) -> u64 {
        u64::from(self.sockets[side].load(Relaxed)) * 1024
    }

    /// Records the bytes that were read between the last two looks at the sockets.
    pub fn set_moved_lately(&self, bytes: u64) {
        self.moved_lately.store(bytes, Relaxed);
    }

    /// Returns the bytes that were read between the last two looks at the sockets.
    pub fn moved_lately(&self) -> u64 {
        self.moved_lately.load(Relaxed)
    }

    /// Records the part of a side's kernel memory that was received and is not read.
    pub fn set_received(&self, side: usize, bytes: usize) {
        self.received[side].store(u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX), Relaxed);
    }

    /// Records the bytes in the kernel that a side has not acknowledged.
    pub fn set_unsent(&self, side: usize, bytes: usize) {
        self.unsent[side].store(bytes as u64, Relaxed);
    }

    /// Returns what a side's socket had received and nobody had read at the last look.
    pub fn received(&self, side: usize) -> u64 {
        u64::from(self.received[side].load(Relaxed)) * 1024
    }

    /// Counts a question about frames.
    pub fn count_ask(&self) {
        self.asks.fetch_add(1, Relaxed);
    }

    /// Reads all counters.
    pub fn record(&self, now: u64) -> Record {
        let [to_broker, to_client] = &self.lanes;
        let clamp = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        Record {
            id: self.id,
            to_broker_bytes: to_broker.bytes(),
            to_client_bytes: to_client.bytes(),
            client_reads: to_broker.reads(),
            held_for_broker: clamp(to_broker.held()),
            held_for_client: clamp(to_client.held()),
            pauses_to_broker: to_broker.pauses(),
            pauses_to_client: to_client.pauses(),
            half_closed: self.half_closed.load(Relaxed),
            idle_ms: clamp(now.saturating_sub(self.moved_at.load(Relaxed))),
            asks: self.asks.load(Relaxed),
            thread: self.thread,
            spliced_bytes: to_broker.spliced.load(Relaxed) + to_client.spliced.load(Relaxed),
            untaken_bytes: self.unsent.iter().map(|bytes| bytes.load(Relaxed)).sum::<u64>()
                + to_broker.held()
                + to_client.held(),
        }
    }
}

impl Record {
    /// Writes the record in the layout of `RECORD`.
    pub fn write(&self, into: &mut [u8; RECORD_BYTES]) {
        let wide = [self.id, self.to_broker_bytes, self.to_client_bytes, self.client_reads];
        let narrow = [
            self.held_for_broker,
            self.held_for_client,
            self.pauses_to_broker,
            self.pauses_to_client,
            self.half_closed,
            self.idle_ms,
            self.asks,
            self.thread,
        ];
        let (wides, rest) = into.split_at_mut(4 * 8);
        let (narrows, last) = rest.split_at_mut(8 * 4);
        for (place, value) in wides.chunks_exact_mut(8).zip(wide) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        for (place, value) in narrows.chunks_exact_mut(4).zip(narrow) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        for (place, value) in last.chunks_exact_mut(8).zip([self.spliced_bytes, self.untaken_bytes]) {
            place.copy_from_slice(&value.to_le_bytes());
        }
    }
}
