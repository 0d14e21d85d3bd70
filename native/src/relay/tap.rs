//! The commands of a pair for the lines of `proxyLogLevel`: the head of each frame, both ways, without payloads.
//!
//! Rules: no byte is changed, dropped or held back for it, and what Python has not taken is bounded: while much waits
//! neither side is read. Only what a side sent before it failed passes untold where there is no room. Sizes that make no
//! sense end the scan of a direction for good.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use super::queue::{lock, Command, Kind};
use super::watch::Teller;
use super::worker::Shared;

/// A longer head is cut: a command's type comes first, and topics are shorter.
const HEAD_BYTES: usize = 4 * 1024;
/// A read brings so much behind the frame under way: nobody knows how many frames that is.
const READ_BYTES: u64 = 2 * 1024;
/// While more waits for Python nothing is read. One read adds a head and at most 1.3 times `READ_BYTES`.
const RESTS_ABOVE: usize = 1024;
/// All that ever waits of one pair (`relay_log.TAPPED_BYTES` counts it, and a head for each direction).
const MOST_BYTES: usize = 8 * 1024;
/// In front of each head that waits: its direction and its size.
const LABEL_BYTES: usize = 3;
const SIZES_BYTES: usize = 8;
const CHECKSUM: [u8; 2] = [0x0e, 1];
const BROKER_ENTRY: [u8; 2] = [0x0e, 2];
const CHECKSUM_BYTES: usize = 6;

/// Reads the size of a frame on the wire, and that of its command; None if they make no sense.
fn sizes(head: &[u8]) -> Option<(u64, usize)> {
    let [a, b, c, d, e, f, g, h] = *head.first_chunk::<SIZES_BYTES>()?;
    let total = i64::from(i32::from_be_bytes([a, b, c, d]));
    let command = i64::from(i32::from_be_bytes([e, f, g, h]));
    (2 <= command && command <= total - 4).then(|| (total as u64 + 4, command as usize))
}

/// Returns how long the headers of a message are, if these bytes begin with some.
fn headers(bytes: &[u8]) -> Option<usize> {
    let size_at = |at: usize| bytes.get(at..)?.first_chunk().map(|size| u32::from_be_bytes(*size) as usize);
    let mut at = 0;
    if bytes.starts_with(&BROKER_ENTRY) {
        at = 6 + size_at(2)?;
    }
    if bytes.get(at..)?.starts_with(&CHECKSUM) {
        at += CHECKSUM_BYTES;
    }
    Some(at + 4 + size_at(at)?).filter(|end| *end <= bytes.len())
}

/// Finds the heads of one direction's frames, from its first byte, in reads of any size.
#[derive(Default)]
pub struct CommandScanner {
    head: Vec<u8>,
    left: u64,
    ended: bool,
}

impl CommandScanner {
    /// Returns whether sizes that make no sense have ended the scan.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Returns how many bytes may pass unseen: the rest of a frame whose head was found.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Counts bytes that passed unseen; `count` must be at most `left()`.
    pub fn skip(&mut self, count: u64) {
        debug_assert!(count <= self.left);
        self.left = self.left.saturating_sub(count);
    }

    /// Returns how many bytes of the frame under way are still to come, as far as its size is known.
    fn ahead(&self) -> u64 {
        sizes(&self.head).map_or(self.left, |(frame, _)| frame - self.head.len() as u64)
    }

    /// Scans the next bytes; calls `found` with the sizes, the command and the headers of each frame.
    pub fn scan(&mut self, mut bytes: &[u8], mut found: impl FnMut(&[u8])) {
        while !bytes.is_empty() && !self.ended {
            if self.left > 0 {
                let passed = self.left.min(bytes.len() as u64);
                self.left -= passed;
                bytes = &bytes[passed as usize..];
                continue;
            }
            let known = sizes(&self.head);
            let wanted = known.map_or(SIZES_BYTES, |(frame, _)| frame.min(HEAD_BYTES as u64) as usize);
            let (taken, rest) = bytes.split_at(bytes.len().min(wanted - self.head.len()));
            self.head.extend_from_slice(taken);
            bytes = rest;
            if self.head.len() < wanted {
                return;
            }
            match known {
                Some((frame, command)) => {
                    let told = SIZES_BYTES + command;
                    let behind = self.head.get(told..).and_then(headers).unwrap_or(0);
                    found(&self.head[..self.head.len().min(told + behind)]);
                    self.left = frame - wanted as u64;
                    self.head.clear();
                }
                None if sizes(&self.head).is_none() => {
                    self.ended = true;
                    self.head = Vec::new();
                }
                None => {}
            }
        }
    }
}

/// The heads that wait for Python, one behind the other.
#[derive(Default)]
struct Waiting {
    heads: Vec<u8>,
    /// Python was told that there are some.
    told: bool,
    /// A direction waits for room.
    rests: bool,
    closed: bool,
}

impl Waiting {
    fn push(&mut self, direction: usize, head: &[u8]) {
        if self.closed || self.heads.len() + LABEL_BYTES + head.len() > MOST_BYTES {
            return;
        }
        if self.heads.capacity() == 0 {
            self.heads.reserve_exact(MOST_BYTES);
        }
        let [low, high] = (head.len() as u16).to_le_bytes();
        self.heads.extend_from_slice(&[direction as u8, low, high]);
        self.heads.extend_from_slice(head);
    }

    fn full(&self) -> bool {
        self.heads.len() > RESTS_ABOVE
    }
}

/// The commands of one pair on their way to Python.
#[derive(Default)]
pub struct Tapped {
    waiting: Mutex<Waiting>,
    /// The thread of the pair, and the pair.
    reader: OnceLock<(Weak<Shared>, u64)>,
}

impl Tapped {
    /// Begins for a pair: its thread reads on when there is room again.
    pub fn begin(&self, thread: Weak<Shared>, pair: u64) {
        let _ = self.reader.set((thread, pair));
    }

    /// Takes the oldest heads, each with its direction. Python is told of the next only when it has taken all.
    pub fn take(&self, most: usize) -> Vec<(usize, Vec<u8>)> {
        let mut waiting = lock(&self.waiting);
        let mut taken = Vec::new();
        let mut rest = waiting.heads.as_slice();
        while let Some((&[direction, low, high], heads)) = rest.split_first_chunk().filter(|_| taken.len() < most) {
            let (head, behind) = heads.split_at(u16::from_le_bytes([low, high]).into());
            taken.push((direction.into(), head.to_vec()));
            rest = behind;
        }
        if rest.is_empty() {
            waiting.heads = Vec::new();
            waiting.told = false;
        } else {
            let count = waiting.heads.len() - rest.len();
            waiting.heads.drain(..count);
        }
        self.wake(waiting);
        taken
    }

    /// Ends the tap: Python wants no more of it.
    pub fn close(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.heads = Vec::new();
        waiting.closed = true;
        self.wake(waiting);
    }

    /// Has the pair read on, if it waits for room and there is some.
    fn wake(&self, mut waiting: MutexGuard<'_, Waiting>) {
        if waiting.full() || !mem::take(&mut waiting.rests) {
            return;
        }
        drop(waiting);
        if let Some((thread, pair)) = self.reader.get() {
            if let Some(thread) = thread.upgrade() {
                let _ = thread.inbox.send(Command::Look(*pair));
            }
        }
    }

    /// Returns whether a direction has to wait for room.
    fn rests(&self) -> bool {
        let mut waiting = lock(&self.waiting);
        let full = waiting.full();
        waiting.rests |= full;
        full
    }
}

/// The tap of one direction.
pub struct Tap {
    number: usize,
    tapped: Arc<Tapped>,
    scanner: CommandScanner,
    /// What came with the handshake and is not scanned yet: it may hold more frames than there is room for.
    first: Vec<u8>,
    /// The source has failed.
    last: bool,
}

impl Tap {
    /// Begins with the bytes that came with the handshake.
    pub fn new(number: usize, tapped: Arc<Tapped>, first: &[u8]) -> Self {
        Tap { number, tapped, scanner: CommandScanner::default(), first: first.to_vec(), last: false }
    }

    /// Returns whether nothing may be read for now; scans what came with the handshake before.
    pub fn rests(&mut self, teller: &mut Teller<'_>) -> bool {
        loop {
            let full = !self.last && self.tapped.rests();
            if full || self.first.is_empty() {
                return full;
            }
            let rest = self.first.split_off(self.first.len().min(self.most()));
            let piece = mem::replace(&mut self.first, rest);
            self.scan(&piece, teller);
        }
    }

    /// Scans a read; returns whether there is more to be told of this direction.
    pub fn scan(&mut self, bytes: &[u8], teller: &mut Teller<'_>) -> bool {
        let mut waiting = lock(&self.tapped.waiting);
        self.scanner.scan(bytes, |head| waiting.push(self.number, head));
        if !waiting.heads.is_empty() && !mem::replace(&mut waiting.told, true) {
            teller.tell(Kind::Commands, [0; 5]);
        }
        !(self.scanner.ended() || waiting.closed)
    }

    /// Returns how much may be read at once.
    pub fn most(&self) -> usize {
        let most = if self.last { u64::MAX } else { self.scanner.ahead().saturating_add(READ_BYTES) };
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// Returns how many bytes may pass unseen.
    pub fn left(&self) -> u64 {
        self.scanner.left()
    }

    /// Counts bytes that passed unseen.
    pub fn skip(&mut self, count: usize) {
        self.scanner.skip(count as u64);
    }

    /// Has the direction wait for nothing any more: the source has failed.
    pub fn speak_last(&mut self) {
        self.last = true;
    }
}
