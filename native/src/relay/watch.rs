//! The frames of interest of one direction: found, stopped, answered, and the bytes of them that are under way.

use super::queue::{Event, Kind};
use super::scanner::{FrameMatch, FrameScanner};

/// More questions than this within a second are not asked: a flood of tiny frames would keep Python's loop busy.
pub const MOST_ASKS: u32 = 1_000;
pub const WINDOW_MS: u64 = 1_000;

/// Events of one pair.
pub struct Teller<'a> {
    pub pair: u64,
    pub events: &'a mut Vec<Event>,
}

impl Teller<'_> {
    /// Adds an event.
    pub fn tell(&mut self, kind: Kind, values: [u64; 5]) {
        self.events.push(Event { kind, pair: self.pair, values });
    }
}

/// The state of a direction that is scanned.
///
/// `open`: bytes of the last watch frame that are still to be read. `waiting`: the frames behind the gate; they are
/// `asked` once everything before them has left. `owed`: DRAINED of `generation` is still to be told.
pub struct Watch {
    scanner: FrameScanner,
    open: u64,
    waiting: Option<FrameMatch>,
    asked: bool,
    owed: bool,
    generation: u64,
    window_began: u64,
    window_asks: u32,
    window_insides: u32,
    passed: [u64; 3],
}

/// What is to be done with the bytes of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Bytes that may pass; the rest waits.
    pub passing: usize,
    /// Bytes among these that are inside a watch frame which began before.
    pub inside: u64,
}

impl Watch {
    /// Begins at the first byte of a frame.
    pub fn new() -> Self {
        Watch {
            scanner: FrameScanner::new(),
            open: 0,
            waiting: None,
            asked: false,
            owed: false,
            generation: 0,
            window_began: 0,
            window_asks: 0,
            window_insides: 0,
            passed: [0; 3],
        }
    }

    /// Returns how many bytes of the frame under way are still to come: they may pass unseen.
    pub fn left(&self) -> u64 {
        self.scanner.left()
    }

    /// Returns whether frames wait for an answer.
    pub fn waits(&self) -> bool {
        self.waiting.is_some()
    }

    /// Scans a read, and says how much of it may pass.
    #[inline]
    pub fn scan(&mut self, bytes: &[u8], now: u64, teller: &mut Teller<'_>) -> Share {
        match self.scanner.scan(bytes) {
            None if self.open == 0 => Share { passing: bytes.len(), inside: 0 },
            None => Share { passing: bytes.len(), inside: self.take_open(bytes.len()) },
            Some(found) => self.found(found, bytes.len(), now, teller),
        }
    }

    /// Counts bytes inside a frame that passed unseen; returns how many of them are inside a watch frame.
    pub fn skip(&mut self, count: usize) -> u64 {
        self.scanner.skip(count as u64);
        self.take_open(count)
    }

    fn found(&mut self, found: FrameMatch, count: usize, now: u64, teller: &mut Teller<'_>) -> Share {
        let inside = self.take_open(found.start);
        if found.unwalkable {
            teller.tell(Kind::Unwalkable, [0; 5]);
        }
        if !found.has_frames() {
            return Share { passing: count, inside };
        }
        self.turn_window(now, teller);
        if self.window_asks >= MOST_ASKS {
            self.open = found.open_bytes;
            self.passed[0] += found.successes;
            self.passed[1] += found.updates;
            self.passed[2] += found.frame_bytes;
            return Share { passing: count, inside };
        }
        self.window_asks += 1;
        self.waiting = Some(found);
        self.asked = false;
        Share { passing: found.start, inside }
    }

    fn take_open(&mut self, count: usize) -> u64 {
        let inside = self.open.min(count as u64);
        self.open -= inside;
        inside
    }

    fn turn_window(&mut self, now: u64, teller: &mut Teller<'_>) {
        if now.saturating_sub(self.window_began) >= WINDOW_MS {
            self.tell_passed(teller);
            self.window_began = now;
            self.window_asks = 0;
            self.window_insides = 0;
        }
    }

    /// Tells of frames that passed without being asked for. They are added up until the second is over.
    pub fn tell_passed(&mut self, teller: &mut Teller<'_>) {
        let [successes, updates, frame_bytes] = std::mem::take(&mut self.passed);
        if successes + updates > 0 {
            teller.tell(Kind::Passed, [0, successes, updates, frame_bytes, 0]);
        }
    }

    /// Called when nothing is held any more, or only bytes that wait: tells that these have left, and asks for the
    /// next. Returns whether a question was asked.
    pub fn settle(&mut self, teller: &mut Teller<'_>) -> bool {
        if self.owed {
            self.owed = false;
            teller.tell(Kind::Drained, [self.generation, 0, 0, 0, 0]);
        }
        let Some(found) = self.waiting.filter(|_| !self.asked) else {
            return false;
        };
        self.asked = true;
        self.generation += 1;
        let FrameMatch { successes, updates, frame_bytes, open_bytes, .. } = found;
        teller.tell(Kind::Frames, [self.generation, successes, updates, frame_bytes, open_bytes]);
        true
    }

    /// Takes the answer to a question; returns whether it was the one that is open.
    pub fn answered(&mut self, generation: u64) -> bool {
        if !self.asked || generation != self.generation {
            return false;
        }
        let Some(found) = self.waiting.take() else {
            return false;
        };
        self.asked = false;
        self.owed = true;
        self.open = found.open_bytes;
        true
    }

    /// Drops the question, if there is one: the pair ends. A later answer finds none.
    pub fn forget(&mut self) {
        self.waiting = None;
        self.asked = false;
    }

    /// Returns when frames that passed are to be told of, if there are any.
    pub fn tells_at(&self) -> Option<u64> {
        (self.passed[0] + self.passed[1] > 0).then_some(self.window_began + WINDOW_MS)
    }

    /// Tells of frames that passed once their second is over.
    pub fn tick(&mut self, now: u64, teller: &mut Teller<'_>) {
        if self.tells_at().is_some_and(|at| now >= at) {
            self.tell_passed(teller);
        }
    }

    /// Called when the receiver leaves bytes lying, `inside` of them in a watch frame: tells so if nothing is owed.
    /// As often as questions at most: a peer that takes byte by byte would flood Python's loop otherwise.
    pub fn left_lying(&mut self, inside: u64, now: u64, teller: &mut Teller<'_>) {
        if inside == 0 || self.owed {
            return;
        }
        self.turn_window(now, teller);
        if self.window_insides < MOST_ASKS {
            self.window_insides += 1;
            self.owed = true;
            self.generation += 1;
            teller.tell(Kind::Inside, [self.generation, inside, 0, 0, 0]);
        }
    }
}

impl Default for Watch {
    fn default() -> Self {
        Watch::new()
    }
}
