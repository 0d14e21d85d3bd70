//! One direction of a pair: reads one socket, writes the other, and holds what the receiver does not take.
//!
//! Edge-triggered: `readable` and `writable` stay set until a system call says otherwise. Rule: the receiver is always
//! tried first, and nothing is read while anything is held, so that at most one read is held.

use std::io;

use super::bulk::{Budget, Bulk, HEAD_BYTES, MOST_SPLICED, SPLICED_BYTES};
use super::held::Held;
use super::meter::{Look, Meter};
use super::pipes::{Pipe, PipePool};
use super::pool::{Mute, Share as PoolShare, PAUSED_BY_POOL};
use super::queue::Event;
use super::slots::Hold;
use super::stats::{Stats, PAUSED_BY_WATCH, PAUSES_DRIPPED_THROUGH};
use super::tap::Tap;
use super::watch::{Share, Teller, Watch};

/// A receiver that takes nothing for this long gives its pipe back: each thread has few.
const PIPE_STUCK_MS: u64 = 1_000;

/// The sockets of a direction, so that its rules are tested without any.
pub trait Ends {
    /// Reads from the source; 0 is its FIN.
    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize>;
    /// Writes to the sink.
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// Moves bytes from the source into an empty pipe; 0 is its FIN.
    fn fill(&mut self, pipe: &mut Pipe, most: usize) -> io::Result<usize>;
    /// Moves bytes from a pipe to the sink.
    fn empty(&mut self, pipe: &mut Pipe) -> io::Result<usize>;
    /// Sends a FIN to the sink.
    fn finish(&mut self);
    /// Returns how much the sink takes at once, 0 if an event will say when it takes something.
    fn room(&mut self, unsent_most: usize) -> usize;
    /// Returns whether bytes may pass unseen, through a pipe.
    fn splices(&self) -> bool {
        true
    }
    /// Returns whether the source has no more for now, after a read that was `short`.
    fn emptied(&self, short: bool) -> bool {
        short
    }
    /// Returns the bytes that `send` has taken and the sink has not.
    fn unsent(&self) -> usize {
        0
    }
    /// Writes those bytes; fails like a write if the sink does not take all of them.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a thread lends to a direction for one turn.
pub struct Turn<'a> {
    pub buffer: &'a mut [u8],
    pub pipes: &'a mut PipePool,
    /// The thread's part of the relay pool; None without a limit.
    pub pool: &'a mut Option<PoolShare>,
    pub events: &'a mut Vec<Event>,
    pub now: u64,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing to do until the kernel or Python says so.
    Rest,
    /// The share is used up, and there is more.
    Again,
    SourceFailed(i32),
    SinkFailed(i32),
}

/// The state of one direction. At rest it owns no buffer.
pub struct Direction {
    /// 0 reads the client, 1 the broker.
    number: usize,
    /// The source may have bytes, an end or an error.
    pub readable: bool,
    /// The source has more to say than what a short read shows: an end, an error, urgent data.
    pub thorough: bool,
    /// The sink may take bytes.
    pub writable: bool,
    /// Nothing is read any more: the pair ends.
    pub closing: bool,
    eof: bool,
    finished: bool,
    held: Held,
    /// Bytes that were sealed for the sink and have not left, and the memory of both ends' sessions.
    sealed: u32,
    sessions: u32,
    pipe: Option<Pipe>,
    /// When the pipe last got or gave bytes.
    pipe_moved: u64,
    watch: Option<Box<Watch>>,
    meter: Option<Box<Meter>>,
    tap: Option<Box<Tap>>,
    /// One frame, or one read, passes although a threshold or a rate pauses the direction.
    dripping: bool,
    /// The drip is one read, wherever that ends in a frame.
    whole_read: bool,
    bulk: Bulk,
    mute: Mute,
}

fn would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

fn number_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

impl Direction {
    /// Begins with both sockets to be tried: an edge that came before is not repeated.
    pub fn new(number: usize, scan: bool, meter: Option<Meter>, tap: Option<Tap>) -> Self {
        Direction {
            number,
            readable: true,
            thorough: false,
            writable: true,
            closing: false,
            eof: false,
            finished: false,
            held: Held::default(),
            sealed: 0,
            sessions: 0,
            pipe: None,
            pipe_moved: 0,
            watch: scan.then(Box::default),
            meter: meter.map(Box::new),
            tap: tap.map(Box::new),
            dripping: false,
            whole_read: false,
            bulk: Bulk::new(),
            mute: Mute::default(),
        }
    }

    /// Holds the bytes that came with the handshake: they leave in the first turn.
    pub fn first(&mut self, bytes: &[u8], stats: &Stats, turn: &mut Turn<'_>) -> io::Result<()> {
        let share = self.scan(bytes, turn.now, stats, &mut Teller { pair: stats.id, events: turn.events });
        self.held.keep(bytes, share.passing)
    }

    /// Returns whether the source's FIN was read.
    pub fn at_end(&self) -> bool {
        self.eof
    }

    /// Returns whether the FIN was passed on: nothing will ever happen here again.
    pub fn finished(&self) -> bool {
        self.finished
    }

    /// Returns the bytes that have been read and not written.
    pub fn held_bytes(&self) -> usize {
        self.held.len() + self.sealed as usize + self.pipe.as_ref().map_or(0, Pipe::filled)
    }

    /// Takes note of what is sealed for the sink, and of the memory of the session that opens and of the one that seals.
    pub fn note_sealed(&mut self, sealed: usize, memory: usize, stats: &Stats) {
        // Both are less than some reads.
        let told = (sealed as u32, memory as u32);
        if told != (self.sealed, self.sessions) {
            (self.sealed, self.sessions) = told;
            self.note_held(stats);
        }
    }

    /// Tells what is held, and the memory that is kept for it: a pipe's is that of all that may be in it.
    pub fn note_held(&self, stats: &Stats) {
        let of_pipe = self.pipe.as_ref().filter(|pipe| pipe.filled() > 0).map_or(0, Pipe::capacity);
        stats.lanes[self.number].set_held(self.held_bytes(), self.held.kept() + self.sessions as usize + of_pipe);
    }

    /// Returns whether frames wait for an answer.
    pub fn waits(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.waits())
    }

    /// Returns the state of the scan, if this direction is scanned.
    pub fn watch(&mut self) -> Option<&mut Watch> {
        self.watch.as_deref_mut()
    }

    /// Moves bytes until one side has or takes no more, or the share is used up.
    pub fn turn(&mut self, ends: &mut impl Ends, stats: &Stats, turn: &mut Turn<'_>) -> Step {
        let mut budget = Budget::whole();
        self.look(stats, turn.now);
        loop {
            let rests = self.rests(stats, turn);
            match self.flush(ends, stats, turn) {
                Ok(true) => {}
                Ok(false) => return Step::Rest,
                Err(error) => return Step::SinkFailed(number_of(&error)),
            }
            if self.eof {
                if !self.finished {
                    self.finished = true;
                    ends.finish();
                }
                return Step::Rest;
            }
            let engines_own = if turn.pool.is_some() { PAUSED_BY_POOL } else { 0 };
            if rests || !self.may_read(stats, engines_own, turn.now) || !self.readable || self.closing {
                return Step::Rest;
            }
            if budget.spent() {
                return Step::Again;
            }
            let allowed = self.allowance(ends, stats, turn);
            if allowed == 0 {
                return Step::Rest;
            }
            if let Err(step) = self.read(ends, stats, turn, &mut budget, allowed) {
                return step;
            }
        }
    }

    /// Writes what is held; returns whether everything has left, and nothing waits for an answer.
    fn flush(&mut self, ends: &mut impl Ends, stats: &Stats, turn: &mut Turn<'_>) -> io::Result<bool> {
        if self.pipe.is_some() {
            let flushed = self.flush_pipe(ends, stats, turn)?;
            self.note_held(stats);
            if !flushed {
                return Ok(false);
            }
        }
        if ends.unsent() > 0 {
            if !self.writable {
                return Ok(false);
            }
            match ends.flush() {
                Ok(()) => stats.moved(turn.now),
                Err(error) if would_block(&error) => {
                    self.writable = false;
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        while !self.held.leaving().is_empty() {
            if !self.writable {
                return Ok(false);
            }
            let sent = self.try_send(ends, None)?;
            if sent > 0 {
                self.held.left(sent);
                stats.moved(turn.now);
                self.note_held(stats);
            }
            if ends.unsent() > 0 {
                return Ok(false);
            }
        }
        if let Some(watch) = self.watch.as_mut() {
            if watch.settle(&mut Teller { pair: stats.id, events: turn.events }) {
                stats.count_ask();
            }
        }
        Ok(!self.held.waits())
    }

    fn flush_pipe(&mut self, ends: &mut impl Ends, stats: &Stats, turn: &mut Turn<'_>) -> io::Result<bool> {
        while let Some(pipe) = self.pipe.as_mut().filter(|pipe| pipe.filled() > 0) {
            if !self.writable {
                return Ok(false);
            }
            match ends.empty(pipe) {
                Ok(0) => return Err(io::Error::from_raw_os_error(libc::EPIPE)),
                Ok(_) => {
                    stats.moved(turn.now);
                    self.pipe_moved = turn.now;
                }
                Err(error) if would_block(&error) => self.writable = false,
                Err(error) => return Err(error),
            }
        }
        if let Some(pipe) = self.pipe.take() {
            turn.pipes.give_back(pipe);
        }
        Ok(true)
    }

    /// Sends what is given, or what is held. A short write means that the sink is full.
    fn try_send(&mut self, ends: &mut impl Ends, bytes: Option<&[u8]>) -> io::Result<usize> {
        let bytes = bytes.unwrap_or(self.held.leaving());
        match ends.send(bytes) {
            Ok(sent) => {
                self.writable = sent == bytes.len() && ends.unsent() == 0;
                Ok(sent)
            }
            Err(error) if would_block(&error) => {
                self.writable = false;
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns how much the relay pool lets this direction read now.
    fn allowance(&mut self, ends: &mut impl Ends, stats: &Stats, turn: &mut Turn<'_>) -> usize {
        match turn.pool.as_mut() {
            None => usize::MAX,
            Some(share) => self.mute.allowance((stats.id, self.number), &stats.lanes[self.number], ends, share),
        }
    }

    /// Returns the wait for memory of the relay pool.
    pub fn mute(&mut self) -> &mut Mute {
        &mut self.mute
    }

    /// Reads once, `allowed` bytes at most, and writes what was read.
    fn read(
        &mut self,
        ends: &mut impl Ends,
        stats: &Stats,
        turn: &mut Turn<'_>,
        budget: &mut Budget,
        allowed: usize,
    ) -> Result<(), Step> {
        let left = self.left().min(allowed as u64);
        let seen = self.tap.as_ref().map_or(usize::MAX, |tap| tap.most());
        let mut most = turn.buffer.len().min(allowed).min(seen);
        if self.bulk.on() && !self.whole_read && ends.splices() {
            if left >= SPLICED_BYTES {
                if let Some(pipe) = turn.pipes.take(turn.now) {
                    if self.splice(ends, stats, turn, budget, (pipe, left))? {
                        return Ok(());
                    }
                } else {
                    self.bulk.disappoint();
                }
            } else {
                most = most.min(left as usize + HEAD_BYTES);
            }
        }
        if self.dripping && !self.whole_read {
            most = most.min(usize::try_from(self.room()).unwrap_or(usize::MAX));
        }
        let count = match ends.receive(&mut turn.buffer[..most]) {
            Ok(count) => count,
            Err(error) if would_block(&error) => {
                self.readable = !ends.emptied(true);
                budget.spend(0);
                return Ok(());
            }
            Err(error) => return Err(Step::SourceFailed(number_of(&error))),
        };
        if count == 0 {
            self.ended(stats);
            return Ok(());
        }
        if ends.emptied(count < most) && !self.thorough {
            self.readable = false;
        }
        budget.spend(count);
        stats.lanes[self.number].count_read(count);
        stats.moved(turn.now);
        self.pass(ends, count, stats, turn)?;
        self.dripped();
        self.bulk.copied(count, most, self.left(), turn.buffer.len());
        Ok(())
    }

    /// Returns how many bytes of a payload may pass unseen.
    fn left(&self) -> u64 {
        let unwatched = self.watch.as_ref().map_or(u64::MAX, |watch| watch.left());
        let left = self.meter.as_ref().map_or(unwatched, |meter| meter.left());
        self.tap.as_ref().map_or(left, |tap| left.min(tap.left()))
    }

    /// Takes note of the source's FIN; the books say so before the sink gets a FIN.
    fn ended(&mut self, stats: &Stats) {
        stats.half_close(self.number);
        self.eof = true;
        self.readable = false;
    }

    fn scan(&mut self, bytes: &[u8], now: u64, stats: &Stats, teller: &mut Teller<'_>) -> Share {
        match (self.watch.as_mut(), self.meter.as_mut()) {
            (Some(watch), _) => watch.scan(bytes, now, teller),
            (None, Some(meter)) => meter.scan(bytes, now, stats, teller),
            (None, None) => Share { passing: bytes.len(), inside: 0 },
        }
    }

    // --- commands for the log: `tap` ---------------------------------------------------------------

    fn rests(&mut self, stats: &Stats, turn: &mut Turn<'_>) -> bool {
        self.tap.as_mut().is_some_and(|tap| tap.rests(&mut Teller { pair: stats.id, events: turn.events }))
    }

    /// Has the direction wait for no line any more: its source has failed.
    pub fn speak_last(&mut self) {
        if let Some(tap) = self.tap.as_mut() {
            tap.speak_last();
        }
    }

    // --- what a client sends: `meter` -------------------------------------------------------------

    /// Begins or ends the pause of a topic that has no tokens left; after too long a pause one frame passes.
    fn look(&mut self, stats: &Stats, now: u64) {
        if let Some(meter) = self.meter.as_mut() {
            match meter.look(now, stats) {
                Look::Forced if !self.dripping => {
                    self.dripping = true;
                    meter.count_forced();
                }
                // The broker has a part of the frame already.
                Look::Begins => self.dripping |= !meter.frame_over(),
                _ => {}
            }
        }
    }

    /// Returns whether no reason but `ignored` pauses the direction, or a drip is under way that the reasons left do not
    /// stop.
    fn may_read(&mut self, stats: &Stats, ignored: u32, now: u64) -> bool {
        self.look(stats, now);
        let pauses = stats.lanes[self.number].pauses() & !ignored;
        pauses == 0 || (self.dripping && pauses & !PAUSES_DRIPPED_THROUGH == 0)
    }

    /// Passes one frame although a threshold or a rate pauses the direction; one read if frames cannot be told, or with
    /// `whole_read`.
    pub fn drip(&mut self, whole_read: bool) {
        self.dripping = true;
        self.whole_read |= whole_read;
    }

    fn room(&self) -> u64 {
        self.meter.as_ref().map_or(u64::MAX, |meter| meter.room())
    }

    /// Ends a drip whose frame, or whose read, has passed.
    fn dripped(&mut self) {
        let whole_read = std::mem::take(&mut self.whole_read);
        self.dripping = self.dripping && !whole_read && self.meter.as_ref().is_some_and(|meter| !meter.frame_over());
    }

    /// Takes the slot of a PRODUCER, and scans the bytes that waited behind that; returns whether any may move now.
    pub fn assigned(&mut self, generation: u64, hold: Hold, stats: &Stats, turn: &mut Turn<'_>) -> bool {
        let Some(meter) = self.meter.as_mut() else {
            return false;
        };
        let Some(behind) = meter.assigned(generation, hold) else {
            return false;
        };
        let mut teller = Teller { pair: stats.id, events: turn.events };
        let rest = self.held.waiting().get(behind..).unwrap_or_default();
        let share = meter.scan(rest, turn.now, stats, &mut teller);
        self.held.advance_gate(behind + share.passing);
        self.dripped();
        true
    }

    /// Returns when the pause for want of tokens is to be looked at, if there is one.
    pub fn looks_at(&self) -> Option<u64> {
        self.meter.as_ref().and_then(|meter| meter.looks_at())
    }

    /// Sends the first `count` bytes of the buffer, as far as they may pass and the sink takes them; holds the rest.
    fn pass(&mut self, ends: &mut impl Ends, count: usize, stats: &Stats, turn: &mut Turn<'_>) -> Result<(), Step> {
        let Turn { buffer, events, now, .. } = turn;
        let bytes = &buffer[..count];
        let mut teller = Teller { pair: stats.id, events };
        if self.tap.as_mut().is_some_and(|tap| !tap.scan(bytes, &mut teller)) {
            self.tap = None;
        }
        let share = self.scan(bytes, *now, stats, &mut teller);
        let mut sent = 0;
        if share.passing > 0 {
            let passing = Some(&bytes[..share.passing]);
            sent = self.try_send(ends, passing).map_err(|error| Step::SinkFailed(number_of(&error)))?;
        }
        let lies = sent < share.passing || ends.unsent() > 0;
        if sent == count && !lies {
            return Ok(());
        }
        let kept = self.held.keep(&bytes[sent..], share.passing - sent);
        kept.map_err(|error| Step::SourceFailed(number_of(&error)))?;
        self.note_held(stats);
        if share.passing < count && self.watch.is_some() {
            stats.lanes[self.number].pause(PAUSED_BY_WATCH);
        }
        if let Some(watch) = self.watch.as_mut().filter(|_| lies) {
            watch.left_lying(share.inside, *now, &mut teller);
        }
        Ok(())
    }

    /// Moves bytes of a payload through a pipe, unseen. Returns whether a read would tell no more: a splice stops in
    /// front of urgent data as if nothing were there, or as if the source had ended, and only a read goes past.
    fn splice(
        &mut self,
        ends: &mut impl Ends,
        stats: &Stats,
        turn: &mut Turn<'_>,
        budget: &mut Budget,
        (mut pipe, left): (Pipe, u64),
    ) -> Result<bool, Step> {
        let most = pipe.capacity().min(MOST_SPLICED).min(usize::try_from(left).unwrap_or(usize::MAX));
        let filled = ends.fill(&mut pipe, most);
        let count = pipe.filled();
        if count == 0 {
            turn.pipes.give_back(pipe);
            return match filled {
                Ok(_) => Ok(false),
                Err(error) if would_block(&error) => {
                    self.readable = self.thorough;
                    Ok(!self.thorough)
                }
                Err(error) => Err(Step::SourceFailed(number_of(&error))),
            };
        }
        budget.spend(count);
        stats.lanes[self.number].count_read(count);
        stats.lanes[self.number].count_spliced(count);
        stats.moved(turn.now);
        self.bulk.spliced(count, left);
        let inside = self.watch.as_mut().map_or(0, |watch| watch.skip(count));
        if let Some(meter) = self.meter.as_mut() {
            meter.skip(count, turn.now);
        }
        if let Some(tap) = self.tap.as_mut() {
            tap.skip(count);
        }
        self.dripped();
        self.pipe = Some(pipe);
        self.pipe_moved = turn.now;
        let flushed = self.flush_pipe(ends, stats, turn).map_err(|error| Step::SinkFailed(number_of(&error)))?;
        // Only now: what the sink takes at once is never booked as held.
        self.note_held(stats);
        if let Some(watch) = self.watch.as_mut().filter(|_| !flushed) {
            watch.left_lying(inside, turn.now, &mut Teller { pair: stats.id, events: turn.events });
        }
        Ok(true)
    }

    /// Returns when a pipe that is stuck is to be given back, if there is one.
    pub fn unloads_at(&self) -> Option<u64> {
        self.pipe.as_ref().map(|_| self.pipe_moved + PIPE_STUCK_MS)
    }

    /// Copies what is in a stuck pipe, so that others get it. Nothing else is held then: a pipe is filled last.
    pub fn unload(&mut self, stats: &Stats, turn: &mut Turn<'_>) -> Step {
        if self.unloads_at().is_none_or(|at| turn.now < at) {
            return Step::Rest;
        }
        let Some(mut pipe) = self.pipe.take() else {
            return Step::Rest;
        };
        match self.held.keep_from(pipe.filled(), |into| pipe.copy_out(into)) {
            Ok(()) => {
                turn.pipes.give_back(pipe);
                self.note_held(stats);
            }
            // Bytes may be lost: better a broken connection than a broken stream.
            Err(error) => return Step::SourceFailed(number_of(&error)),
        }
        Step::Rest
    }

    /// Takes Python's answer; returns whether it was the one that is open.
    pub fn answered(&mut self, generation: u64, stats: &Stats) -> bool {
        let answered = self.watch.as_mut().is_some_and(|watch| watch.answered(generation));
        if answered {
            self.held.open_gate();
            stats.lanes[self.number].resume(PAUSED_BY_WATCH);
        }
        answered
    }

    /// Lets everything leave, unanswered frames included; returns whether there were any.
    pub fn release(&mut self) -> bool {
        let waited = self.forget();
        self.held.open_gate();
        waited
    }

    /// Drops frames that wait for an answer, and nothing else; returns whether there were any.
    pub fn drop_waiting(&mut self) -> bool {
        let waited = self.forget();
        self.held.drop_waiting();
        waited
    }

    /// Drops everything that is held: the sink is gone. Returns whether frames waited among it.
    pub fn drop_all(&mut self) -> bool {
        let waited = self.forget();
        self.held.clear();
        self.pipe = None;
        waited
    }

    fn forget(&mut self) -> bool {
        let waited = self.waits();
        if let Some(watch) = self.watch.as_mut() {
            watch.forget();
        }
        if let Some(meter) = self.meter.as_mut() {
            meter.forget();
        }
        waited
    }
}
