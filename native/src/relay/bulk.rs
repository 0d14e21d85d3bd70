//! How much a direction may do in one turn, and whether it copies or splices.

/// A turn ends after this many bytes or reads of a direction: a pair has two. With twice as much, lookups of neighbours
/// waited twice as long beside relays that stand (ADR 37).
const TURN_BYTES: usize = 128 * 1024;
const TURN_READS: u32 = 8;
/// Reads of this size, or full ones, are bulk; after three in a row bytes are spliced.
const BULK_BYTES: usize = 32 * 1024;
const BULK_READS: u32 = 3;
const MOST_BULK_READS: u32 = 96;
/// A payload's rest that is spliced has at least this size.
pub const SPLICED_BYTES: u64 = 32 * 1024;
/// One splice moves at most this much: larger ones leave the caches before the receiver reads them (ADR 37).
pub const MOST_SPLICED: usize = 128 * 1024;
/// Splicing gets this little: the sender is slow, and copying is cheaper.
const TRICKLE_BYTES: usize = 8 * 1024;
/// Between spliced payloads only the next frame's head is wanted: a large read would copy that frame's payload.
pub const HEAD_BYTES: usize = 4 * 1024;

/// What is left of a turn.
pub struct Budget {
    bytes: usize,
    reads: u32,
}

impl Budget {
    /// Begins a turn.
    pub fn whole() -> Self {
        Budget { bytes: TURN_BYTES, reads: TURN_READS }
    }

    /// Returns whether others have their turn now.
    pub fn spent(&self) -> bool {
        self.bytes == 0 || self.reads == 0
    }

    /// Counts one read.
    pub fn spend(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.reads = self.reads.saturating_sub(1);
    }
}

/// Whether a direction carries bulk: after how many large reads in a row it splices.
pub struct Bulk {
    seen: u32,
    needed: u32,
}

impl Bulk {
    /// Begins with copies.
    pub fn new() -> Self {
        Bulk { seen: 0, needed: BULK_READS }
    }

    /// Returns whether bytes are spliced where they can be.
    pub fn on(&self) -> bool {
        self.seen >= self.needed
    }

    /// Learns from a copied read of `count` bytes, of `most` that it could have got; `left` is what is now still to
    /// come of a payload, and `buffer_bytes` the largest read.
    pub fn copied(&mut self, count: usize, most: usize, left: u64, buffer_bytes: usize) {
        if !self.on() {
            let large = count >= BULK_BYTES || count == buffer_bytes;
            self.seen = if large { self.seen + 1 } else { 0 };
        } else if count == most && left < SPLICED_BYTES {
            // Small frames, close together: reads should be large. A short read is a slow sender and teaches nothing.
            self.disappoint();
        }
    }

    /// Learns from a spliced read of `count` bytes, of `left`.
    pub fn spliced(&mut self, count: usize, left: u64) {
        if count < TRICKLE_BYTES && (count as u64) < left {
            self.disappoint();
        } else {
            self.needed = BULK_READS;
        }
    }

    /// Splices no more, and waits longer before the next try.
    pub fn disappoint(&mut self) {
        self.seen = 0;
        self.needed = (self.needed * 2).min(MOST_BULK_READS);
    }
}

impl Default for Bulk {
    fn default() -> Self {
        Bulk::new()
    }
}
