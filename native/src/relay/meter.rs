//! What a client sends, by producer: counted in the books, slowed down if a topic has no tokens left.

use std::collections::HashMap;
use std::sync::Arc;

use super::producers::{ProducerScanner, Sink, Stop};
use super::queue::Kind;
use super::slots::{Books, Hold, OTHER};
use super::stats::{Stats, CONSUMES, PAUSED_BY_RATE, PRODUCES};
use super::watch::{Share, Teller, MOST_ASKS, WINDOW_MS};

/// Producers of one connection that have slots of their own.
const MOST_PRODUCERS: usize = 1_024;
/// Slots without tokens that one connection waits for; it meets the others again when it sends.
const MOST_DRY: usize = 64;

/// The producers of one connection, and what the read under way adds to their slots.
struct Ledger {
    books: Arc<Books>,
    producers: HashMap<u64, Hold>,
    /// The producer of the last SEND, and its slot.
    last: Option<(u64, u32)>,
    /// Slot, bytes and messages of SENDs that are not in the books yet.
    run: (u32, u64, u64),
    dry: Vec<u32>,
    now: f64,
    seen: u32,
    ended: bool,
}

impl Ledger {
    fn add(&mut self, slot: u32, bytes: u64, messages: u64) {
        if self.run.0 != slot {
            self.book();
            self.run.0 = slot;
        }
        self.run.1 += bytes;
        self.run.2 += messages;
    }

    fn book(&mut self) {
        let (slot, bytes, messages) = self.run;
        if bytes == 0 {
            return;
        }
        self.run = (slot, 0, 0);
        let left = self.books.debit(slot, bytes, messages, self.now);
        if !left && self.dry.len() < MOST_DRY && !self.dry.contains(&slot) {
            self.dry.push(slot);
        }
    }

    fn forget(&mut self, producer: u64) {
        self.producers.remove(&producer);
        self.last = None;
    }
}

impl Sink for Ledger {
    #[inline]
    fn send(&mut self, producer: Option<u64>, messages: u64, frame_bytes: u64) {
        self.seen |= PRODUCES;
        let slot = match (producer, self.last) {
            (Some(id), Some((last, slot))) if id == last => slot,
            (Some(id), _) => {
                let slot = self.producers.get(&id).map_or(OTHER, Hold::slot);
                self.last = Some((id, slot));
                slot
            }
            (None, _) => OTHER,
        };
        self.add(slot, frame_bytes, messages);
    }

    fn closed(&mut self, producer: u64) {
        self.forget(producer);
    }

    fn subscribed(&mut self) {
        self.seen |= CONSUMES;
    }

    fn ended(&mut self) {
        self.seen |= PRODUCES;
        self.ended = true;
        self.producers.clear();
        self.last = None;
        self.books.count_unreadable();
    }
}

/// A PRODUCER that waits for its slot: the bytes of the read that are scanned then begin `behind` its frame's first.
struct Asked {
    producer: u64,
    behind: usize,
}

/// What a look at the tokens says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    Nothing,
    /// The client is not read from now on.
    Begins,
    /// The pause was too long: one frame has to pass.
    Forced,
}

/// The meter of the direction to the broker.
pub struct Meter {
    scanner: ProducerScanner,
    ledger: Ledger,
    asked: Option<Asked>,
    generation: u64,
    window_began: u64,
    window_asks: u32,
    /// When the pause for want of tokens began, and when the thread looks again.
    paused: Option<(u64, u64)>,
    /// The engine's clock begins at this time of the books'.
    epoch: f64,
}

impl Meter {
    /// Begins at the first byte of a frame; the books' time is `epoch` when the engine's clock is zero.
    pub fn new(books: Arc<Books>, epoch: f64) -> Self {
        let ledger = Ledger {
            books,
            producers: HashMap::new(),
            last: None,
            run: (OTHER, 0, 0),
            dry: Vec::new(),
            now: 0.0,
            seen: 0,
            ended: false,
        };
        Meter {
            scanner: ProducerScanner::new(),
            ledger,
            asked: None,
            generation: 0,
            window_began: 0,
            window_asks: 0,
            paused: None,
            epoch,
        }
    }

    fn seconds(&self, now: u64) -> f64 {
        self.epoch + now as f64 / 1_000.0
    }

    /// Returns how many bytes of the frame under way are still to come: they may pass unseen.
    pub fn left(&self) -> u64 {
        self.scanner.left()
    }

    /// Counts bytes inside a frame that passed unseen.
    pub fn skip(&mut self, count: usize, now: u64) {
        self.scanner.skip(count as u64);
        if self.scanner.ended() {
            self.ledger.now = self.seconds(now);
            self.ledger.add(OTHER, count as u64, 0);
            self.ledger.book();
        }
    }

    /// Scans a read, and says how much of it may pass: all, or the bytes before a PRODUCER that waits for its slot.
    pub fn scan(&mut self, bytes: &[u8], now: u64, stats: &Stats, teller: &mut Teller<'_>) -> Share {
        self.ledger.now = self.seconds(now);
        let mut from = 0;
        if self.ledger.ended {
            self.ledger.add(OTHER, bytes.len() as u64, 0);
        }
        let mut passing = bytes.len();
        while let Some(stop) = self.scanner.scan(&bytes[from..], &mut self.ledger) {
            let start = from + stop.start;
            from += stop.resume;
            if self.ask(stop, now, stats, teller, from - start) {
                passing = start;
                break;
            }
        }
        self.ledger.book();
        stats.see(self.ledger.seen);
        Share { passing, inside: 0 }
    }

    /// Asks for the slot of a producer, if it may have one of its own; returns whether the PRODUCER waits.
    fn ask(&mut self, stop: Stop, now: u64, stats: &Stats, teller: &mut Teller<'_>, behind: usize) -> bool {
        self.ledger.seen |= PRODUCES;
        let Some(producer) = stop.producer.id else {
            // Any producer of the connection may be meant.
            self.ledger.producers.clear();
            self.ledger.last = None;
            return false;
        };
        self.ledger.forget(producer);
        let Some(topic) = stop.producer.topic.filter(|_| self.ledger.producers.len() < MOST_PRODUCERS) else {
            return false;
        };
        if now.saturating_sub(self.window_began) >= WINDOW_MS {
            self.window_began = now;
            self.window_asks = 0;
        }
        if self.window_asks >= MOST_ASKS {
            self.ledger.books.count_unasked();
            return false;
        }
        self.window_asks += 1;
        self.generation += 1;
        self.asked = Some(Asked { producer, behind });
        stats.set_topic(self.generation, topic);
        teller.tell(Kind::Producer, [self.generation, producer, 0, 0, 0]);
        true
    }

    /// Takes the slot of the PRODUCER that waits; returns how many bytes of its frame are scanned already. None if the
    /// answer is to another question.
    pub fn assigned(&mut self, generation: u64, hold: Hold) -> Option<usize> {
        if generation != self.generation {
            return None;
        }
        let Asked { producer, behind } = self.asked.take()?;
        if hold.slot() != OTHER {
            self.ledger.producers.insert(producer, hold);
        }
        self.ledger.last = None;
        Some(behind)
    }

    /// Drops the question, if there is one: the pair ends.
    pub fn forget(&mut self) {
        self.asked = None;
    }

    /// Returns how many bytes a drip may read at most: no more than one frame, if frames can be told.
    pub fn room(&self) -> u64 {
        if self.scanner.ended() {
            u64::MAX
        } else {
            self.scanner.room()
        }
    }

    /// Returns whether a drip is over: the frame that it passes is.
    pub fn frame_over(&self) -> bool {
        self.asked.is_none() && (self.scanner.ended() || self.scanner.between_frames())
    }

    /// Returns when the thread has to look at the pause, if there is one.
    pub fn looks_at(&self) -> Option<u64> {
        self.paused.map(|(_, until)| until)
    }

    /// Counts a frame that passes because its pause was too long.
    pub fn count_forced(&self) {
        self.ledger.books.count_forced();
    }

    /// Begins, prolongs or ends the pause for want of tokens.
    pub fn look(&mut self, now_ms: u64, stats: &Stats) -> Look {
        if self.ledger.dry.is_empty() {
            return Look::Nothing;
        }
        let now = self.seconds(now_ms);
        let books = &self.ledger.books;
        let mut latest = now;
        self.ledger.dry.retain(|slot| {
            let ready_at = books.ready_at(*slot, now);
            latest = latest.max(ready_at);
            ready_at > now
        });
        if self.ledger.dry.is_empty() {
            if self.paused.take().is_some() {
                stats.lanes[0].resume(PAUSED_BY_RATE);
            }
            return Look::Nothing;
        }
        let begins = self.paused.is_none();
        let mut began = self.paused.map_or(now_ms, |(began, _)| began);
        let forced = now_ms >= began + books.max_pause_ms();
        if forced {
            began = now_ms;
        }
        // Rounded up: a timer that rings too early would ring again at once.
        let ready = now_ms + ((latest - now) * 1_000.0).ceil().min(1e9) as u64;
        self.paused = Some((began, ready.min(began + books.max_pause_ms()).max(now_ms + 1)));
        stats.lanes[0].pause(PAUSED_BY_RATE);
        match (forced, begins) {
            (true, _) => Look::Forced,
            (_, true) => Look::Begins,
            _ => Look::Nothing,
        }
    }
}
