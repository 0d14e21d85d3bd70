//! A client and its broker: both directions, how they end, and why.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use super::direction::{Direction, Ends, Step, Turn};
use super::meter::Meter;
use super::pipes::Pipe;
use super::queue::{Cause, Joined, Kind, Linger};
use super::sealed::{self, Sealed, Truncated};
use super::slots::Hold;
use super::stats::{Stats, PAUSED_BY_WATCH};
use super::sys;
use super::tap::Tap;
use super::watch::Teller;
use super::windows::Window;
use crate::tls::Session;

/// Of a pair that ends the peers are looked at as often as those of `proxy/net/ended_sockets.py`.
const LOOK_MS: u64 = 1_000;
/// Turns for what a failed side sent before: enough for a receive buffer of the usual largest size (6 MiB).
const LAST_TURNS: usize = 64;
/// After a mere close the kernel keeps up to this much for a peer that does not read. With more, a pair whose bytes were
/// not all sent is reset, and Python watches the sockets of any other until the peer has them.
pub const LEFT_TO_THE_KERNEL: usize = 64 * 1024;

/// Frames that waited were passed at the end without an answer.
const PASSED_AT_END: u64 = 1;
/// Frames that waited were dropped.
const DROPPED_AT_END: u64 = 2;
/// A side with TLS ended without saying so: between two frames, inside one.
const ENDED_BETWEEN_FRAMES: u64 = 4;
const ENDED_INSIDE_FRAME: u64 = 8;
/// The first look whether a peer has what came before a cut; later ones come after twice the time each.
const DELIVERY_LOOK_MS: u64 = 10;

/// The sockets of one direction, and their sessions of TLS. Any stream socket does: the standard library's type only
/// names the calls.
struct Sockets<'a> {
    source: &'a TcpStream,
    opener: Option<&'a mut Sealed>,
    sink: &'a TcpStream,
    sealer: Option<&'a mut Sealed>,
}

pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

impl Ends for Sockets<'_> {
    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.opener {
            Some(sealed) => sealed.receive(self.source, into),
            None => uninterrupted(|| self.source.read(into)),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.sealer {
            Some(sealed) => sealed.send(self.sink, bytes),
            None => uninterrupted(|| self.sink.write(bytes)),
        }
    }

    fn fill(&mut self, pipe: &mut Pipe, most: usize) -> io::Result<usize> {
        uninterrupted(|| pipe.fill(self.source.as_fd(), most))
    }

    fn empty(&mut self, pipe: &mut Pipe) -> io::Result<usize> {
        uninterrupted(|| pipe.empty(self.sink.as_fd()))
    }

    fn room(&mut self, unsent_most: usize) -> usize {
        let room = sys::room(self.sink.as_fd(), unsent_most);
        self.sealer.as_ref().map_or(room, |sealed| sealed.room(room))
    }

    fn splices(&self) -> bool {
        self.opener.is_none() && self.sealer.is_none()
    }

    fn emptied(&self, short: bool) -> bool {
        self.opener.as_ref().map_or(short, |sealed| sealed.emptied())
    }

    fn unsent(&self) -> usize {
        self.sealer.as_ref().map_or(0, |sealed| sealed.unsent())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sealer.as_mut().map_or(Ok(()), |sealed| sealed.flush(self.sink))
    }

    fn finish(&mut self) {
        if let Some(sealed) = &mut self.sealer {
            // Nobody can be told over TLS that one side sends no more: the pair ends (`Pair::step`).
            return sealed.close(self.sink);
        }
        // A sink that cannot be shut down any more has failed, and its own event says so.
        let _ = self.sink.shutdown(Shutdown::Write);
    }
}

/// How a pair ended. `abrupt`: bytes were not sent, so that the kernel need not keep many either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over {
    pub cause: Cause,
    pub errno: i32,
    pub abrupt: bool,
}

/// How a turn of a pair ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Rest,
    Again,
    Over(Over),
}

/// A pair that only sends what is held.
struct Ending {
    cause: Cause,
    errno: i32,
    /// A peer that takes nothing for this long gets no more.
    stall_ms: u64,
    latest: u64,
    /// When a peer was last seen to have taken bytes.
    taken_at: u64,
    looks_at: u64,
    look_ms: u64,
    /// What the peers had still to take at the last look.
    untaken: usize,
}

impl Ending {
    fn deadline(&self) -> u64 {
        self.latest.min(self.taken_at.saturating_add(self.stall_ms))
    }
}

/// The state of a pair. Side and direction have the same number: 0 is the client and what is read from it.
pub struct Pair {
    pub stats: Arc<Stats>,
    /// The pair is in its thread's run queue.
    pub queued: bool,
    /// When the thread's timer looks at the pair; 0 for never.
    pub timer: u64,
    sockets: [TcpStream; 2],
    sealed: [Option<Box<Sealed>>; 2],
    directions: [Direction; 2],
    errors: [i32; 2],
    /// Sides whose connection is gone: what the kernel says of them means nothing any more.
    dead: [bool; 2],
    first_end: Option<usize>,
    /// The side whose stream was cut inside a frame: a FIN would say that this is all, so it gets an RST behind its bytes.
    cut_off: [bool; 2],
    ending: Option<Box<Ending>>,
    unanswered: u64,
    windows: [Window; 2],
    linger: Linger,
}

impl Pair {
    /// Takes over what Python handed over; the first bytes leave in the first turn.
    pub fn new(joined: Joined, turn: &mut Turn<'_>) -> Self {
        let Joined { stats, client, broker, to_client, to_broker, sessions, scan, counted, tapped, windows, linger } =
            joined;
        let [of_client, of_broker] = sessions;
        let sealed =
            |session: Option<Box<Session>>, first: &[u8]| session.map(|session| Box::new(Sealed::new(session, first)));
        let meter = counted.map(|(books, epoch)| Meter::new(books, epoch));
        let tap = |number: usize, first: &[u8]| tapped.clone().map(|tapped| Tap::new(number, tapped, first));
        let taps = (tap(0, &to_broker), tap(1, &to_client));
        let mut pair = Pair {
            stats,
            queued: false,
            timer: 0,
            sockets: [client, broker].map(|fd: OwnedFd| TcpStream::from(fd)),
            sealed: [sealed(of_client, &to_broker), sealed(of_broker, &to_client)],
            directions: [Direction::new(0, false, meter, taps.0), Direction::new(1, scan, None, taps.1)],
            errors: [0; 2],
            dead: [false; 2],
            first_end: None,
            cut_off: [false; 2],
            ending: None,
            unanswered: 0,
            windows: [Window::new(windows.as_ref(), false), Window::new(windows.as_ref(), true)],
            linger,
        };
        for socket in &pair.sockets {
            // They are already, by contract; a socket that blocks would stop all pairs of the thread.
            let _ = socket.set_nonblocking(true);
        }
        for (number, bytes) in [to_broker, to_client].iter().enumerate() {
            if pair.directions[number].first(bytes, &pair.stats, turn).is_err() {
                pair.end(Cause::Internal, libc::ENOMEM, turn.now);
            }
            if pair.directions[number].waits() {
                pair.stats.lanes[number].pause(PAUSED_BY_WATCH);
            }
            pair.note_held(number);
        }
        pair
    }

    /// Returns the descriptors of both sides.
    pub fn fds(&self) -> [RawFd; 2] {
        [self.sockets[0].as_raw_fd(), self.sockets[1].as_raw_fd()]
    }

    /// Takes note of what epoll says about a side.
    pub fn ready(&mut self, side: usize, events: u32) {
        if events & sys::MAY_READ != 0 {
            self.directions[side].readable = true;
        }
        if events & sys::MORE_THAN_DATA != 0 {
            self.directions[side].thorough = true;
        }
        if events & sys::ENDED != 0 {
            // The bytes in front of the FIN may wait for their receiver for long.
            self.stats.half_close(side);
        }
        if events & sys::MAY_WRITE != 0 {
            self.directions[1 - side].writable = true;
        }
        if events & sys::FAILED != 0 {
            // Reading the error takes it away: a read would then see a mere end.
            if let Ok(Some(error)) = self.sockets[side].take_error() {
                self.errors[side] = error.raw_os_error().unwrap_or(libc::EIO);
            }
        }
    }

    /// Moves what can be moved in one turn.
    pub fn turn(&mut self, turn: &mut Turn<'_>) -> Outcome {
        for side in 0..2 {
            let error = std::mem::take(&mut self.errors[side]);
            if error != 0 {
                self.fail(side, error, turn);
            }
        }
        let mut again = false;
        for number in 0..2 {
            match self.step(number, turn) {
                Step::Rest => {}
                Step::Again => again = true,
                Step::SourceFailed(error) => self.fail(number, error, turn),
                Step::SinkFailed(error) => self.fail(1 - number, error, turn),
            }
        }
        for number in 0..2 {
            if let Step::SourceFailed(error) = self.directions[number].unload(&self.stats, turn) {
                self.fail(number, error, turn);
            }
        }
        if let Some(watch) = self.directions[1].watch() {
            watch.tick(turn.now, &mut Teller { pair: self.stats.id, events: turn.events });
        }
        if self.ending.is_some() {
            self.say_goodbye();
        }
        self.linger_on(turn.now);
        match self.verdict(turn.now) {
            Some(over) => Outcome::Over(over),
            None if again => Outcome::Again,
            None => Outcome::Rest,
        }
    }

    fn step(&mut self, number: usize, turn: &mut Turn<'_>) -> Step {
        let [client, broker] = &self.sockets;
        let [of_client, of_broker] = &mut self.sealed;
        let (of_client, of_broker) = (of_client.as_deref_mut(), of_broker.as_deref_mut());
        let mut ends = match number {
            0 => Sockets { source: client, opener: of_client, sink: broker, sealer: of_broker },
            _ => Sockets { source: broker, opener: of_broker, sink: client, sealer: of_client },
        };
        let direction = &mut self.directions[number];
        let step = direction.turn(&mut ends, &self.stats, turn);
        if self.windows[number].is_narrow() {
            let taken = self.stats.lanes[number].bytes().saturating_sub(direction.held_bytes() as u64);
            self.windows[number].prove(taken, self.sockets[number].as_fd());
        }
        if self.directions[number].at_end() && self.ending.is_none() {
            let first = *self.first_end.get_or_insert(number);
            if self.sealed[1 - number].is_some() {
                self.finish(self.closed_by(first), self.linger.stall_ms, turn.now);
            }
        }
        self.note_sealed();
        step
    }

    fn closed_by(&self, side: usize) -> Cause {
        if side == 0 {
            Cause::ClientClosed
        } else {
            Cause::BrokerClosed
        }
    }

    /// Takes note of what the sessions hold: a read may have made its session write, too.
    fn note_sealed(&mut self) {
        for number in 0..2 {
            // What a source's session keeps of a record is what TLS costs a connection, with or without a pool: if the
            // pool had it, relays that stand would pass the bound above which nobody reads.
            let sink = self.sealed[1 - number].as_deref();
            let unsent = sink.map_or(0, Sealed::unsent);
            let memory = sink.map_or(0, Sealed::unsent_memory);
            self.directions[number].note_sealed(unsent, memory, &self.stats);
        }
    }

    /// Tells the peers with TLS of a pair that ends that no more is sent, once they have what was held for them.
    fn say_goodbye(&mut self) {
        if self.sealed.iter().all(Option::is_none) {
            return;
        }
        for side in 0..2 {
            let owes = self.directions[1 - side].held_bytes() > 0 || self.cut_off[side];
            if let Some(sealed) = self.sealed[side].as_mut().filter(|_| !owes && !self.dead[side]) {
                sealed.close(&self.sockets[side]);
            }
        }
        self.note_sealed();
    }

    /// Puts the end off while a peer takes what is held, or what the kernel has to send in front of that.
    fn linger_on(&mut self, now: u64) {
        if self.ending.as_ref().is_none_or(|ending| now < ending.looks_at) {
            return;
        }
        let untaken = self.untaken();
        if let Some(ending) = self.ending.as_mut() {
            if untaken < ending.untaken {
                ending.taken_at = now;
            }
            ending.untaken = untaken;
            ending.look_ms = LOOK_MS.min(2 * ending.look_ms);
            ending.looks_at = ending.deadline().min(now + ending.look_ms);
        }
    }

    fn untaken(&self) -> usize {
        let in_the_kernel: usize = self.sockets.iter().map(|socket| sys::unsent(socket.as_fd())).sum();
        in_the_kernel + self.directions.iter().map(Direction::held_bytes).sum::<usize>()
    }

    fn verdict(&self, now: u64) -> Option<Over> {
        let [to_broker, to_client] = &self.directions;
        if let Some(ending) = self.ending.as_ref() {
            let delivered = (0..2).all(|side| !self.cut_off[side] || sys::unsent(self.sockets[side].as_fd()) == 0);
            let sent = to_broker.held_bytes() + to_client.held_bytes() == 0 && delivered;
            let over = Over { cause: ending.cause, errno: ending.errno, abrupt: !sent };
            return (sent || now >= ending.deadline()).then_some(over);
        }
        let both = to_broker.finished() && to_client.finished();
        let cause = self.closed_by(self.first_end.unwrap_or(1));
        both.then_some(Over { cause, errno: 0, abrupt: false })
    }

    /// Ends the pair because a side is gone: what it sent before still goes to the other side.
    fn fail(&mut self, side: usize, errno: i32, turn: &mut Turn<'_>) {
        self.dead[side] = true;
        let first = self.ending.is_none();
        if first {
            let is_sealed = self.sealed[side].is_some();
            let cause = match (errno, side) {
                (libc::ETIMEDOUT, _) => Cause::WriteStalled,
                (sealed::FAILED, _) if is_sealed => {
                    let failure = self.sealed[side].as_ref().and_then(|sealed| sealed.failure());
                    let _ = failure.map(|text| self.stats.failure.set(text));
                    Cause::Tls
                }
                (sealed::CUT, _) if is_sealed => Cause::Cut,
                (_, 0) => Cause::ClientReset,
                _ => Cause::BrokerReset,
            };
            // An RST is a cut, too, and so is a record that is no good.
            self.cut_off[1 - side] |= self.sealed[side].as_ref().is_some_and(|sealed| sealed.inside_frame());
            self.end(cause, errno, turn.now);
        }
        if self.drop_for(side) {
            self.unanswered |= DROPPED_AT_END;
        }
        self.directions[1 - side].closing = true;
        if first {
            self.last_words(side, turn);
        }
    }

    /// Reads what a side sent before it failed, if its direction may be read, and sends what can be sent at once.
    fn last_words(&mut self, side: usize, turn: &mut Turn<'_>) {
        self.directions[side].readable = true;
        self.directions[side].speak_last();
        let mut step = Step::Again;
        for _ in 0..LAST_TURNS {
            if step == Step::Again {
                step = self.step(side, turn);
            }
        }
        self.directions[side].closing = true;
        if self.directions[side].release() {
            self.unanswered |= PASSED_AT_END;
            if !matches!(step, Step::SinkFailed(_)) {
                step = self.step(side, turn);
            }
        }
        if matches!(step, Step::SinkFailed(_)) {
            self.dead[1 - side] = true;
            self.drop_for(1 - side);
        }
        self.note_held(side);
    }

    /// Drops what is held for a side that is gone; returns whether frames waited among it.
    fn drop_for(&mut self, side: usize) -> bool {
        let waited = self.directions[1 - side].drop_all();
        if let Some(sealed) = &mut self.sealed[side] {
            sealed.drop_unsent();
        }
        self.note_sealed();
        self.note_held(1 - side);
        waited
    }

    fn end(&mut self, cause: Cause, errno: i32, now: u64) {
        self.ending = Some(Box::new(self.ending_at(cause, errno, now, self.linger.stall_ms)));
    }

    fn ending_at(&self, cause: Cause, errno: i32, now: u64, stall_ms: u64) -> Ending {
        let latest = now.saturating_add(self.linger.longest_ms);
        let look_ms = if self.cut_off.contains(&true) { DELIVERY_LOOK_MS } else { LOOK_MS };
        let looks_at = now + look_ms.min(stall_ms);
        Ending { cause, errno, stall_ms, latest, taken_at: now, looks_at, look_ms, untaken: self.untaken() }
    }

    fn note_held(&self, number: usize) {
        self.directions[number].note_held(&self.stats);
    }

    /// Begins the turn of a direction that waited for memory of the relay pool.
    pub fn grant(&mut self, number: usize) {
        self.directions[number].mute().grant(&self.stats.lanes[number]);
    }

    /// Ends the turn of a direction, if it did not read.
    pub fn expire(&mut self, number: usize) {
        self.directions[number].mute().expire();
    }

    /// Reads how much kernel memory both sockets have, and narrows the windows of a pair that stands still while that
    /// is short.
    pub fn weigh(&mut self) {
        let mut moved = 0;
        for (side, socket) in self.sockets.iter().enumerate() {
            let (memory, received) = sys::socket_memory(socket.as_fd());
            moved += self.windows[side].look(self.stats.lanes[side].bytes(), memory, socket.as_fd());
            self.stats.weigh(side, memory);
            // Who has no memory of the kernel's has nothing to take either.
            self.stats.set_unsent(side, if memory == 0 { 0 } else { sys::unsent(socket.as_fd()) });
            self.stats.set_received(side, received);
        }
        self.stats.set_moved_lately(moved);
    }

    /// Takes Python's answer about frames; returns whether anything may move now.
    pub fn answered(&mut self, generation: u64) -> bool {
        self.directions[1].answered(generation, &self.stats)
    }

    /// Takes the slot of a PRODUCER; returns whether anything may move now.
    pub fn assigned(&mut self, generation: u64, hold: Hold, turn: &mut Turn<'_>) -> bool {
        let assigned = self.directions[0].assigned(generation, hold, &self.stats, turn);
        self.note_held(0);
        assigned
    }

    /// Passes one frame of a direction, or one read, although a threshold or a rate pauses it.
    pub fn drip(&mut self, number: usize, whole_read: bool) {
        self.directions[number].drip(whole_read);
    }

    /// Looks how much waits to be read from the client.
    pub fn measure(&self) {
        self.stats.set_queued(sys::unread(self.sockets[0].as_fd()) as u64);
    }

    /// Returns whether the client is not read because a topic has no tokens left.
    pub fn slowed(&self) -> bool {
        self.directions[0].looks_at().is_some()
    }

    /// Stops reading; the pair is over when what is held has left, or when nobody takes any of it for `stall_ms`.
    pub fn close(&mut self, stall_ms: u64, now: u64) {
        self.finish(Cause::ByPython, stall_ms, now);
    }

    fn finish(&mut self, cause: Cause, stall_ms: u64, now: u64) {
        let ending = self.ending_at(cause, 0, now, stall_ms);
        match self.ending.as_mut() {
            Some(earlier) => {
                earlier.stall_ms = earlier.stall_ms.min(stall_ms);
                earlier.looks_at = earlier.looks_at.min(ending.looks_at);
            }
            None => self.ending = Some(Box::new(ending)),
        }
        for number in 0..2 {
            self.directions[number].closing = true;
            // A cut in front of a frame is a clean one.
            if self.directions[number].drop_waiting() {
                self.unanswered |= DROPPED_AT_END;
            }
            self.note_held(number);
        }
    }

    /// Ends the pair at once, and says how. Where a peer without TLS gets a FIN, one with TLS is told before it, if the
    /// kernel has room for that.
    pub fn abort(&mut self, cause: Cause) -> Over {
        let owed = [1, 0].map(|number: usize| self.directions[number].held_bytes() > 0);
        self.say_goodbye();
        for (sealed, owed) in self.sealed.iter_mut().zip(owed) {
            if let Some(sealed) = sealed.as_mut().filter(|_| !owed) {
                sealed.drop_unsent();
            }
        }
        self.note_sealed();
        match self.ending.as_deref() {
            Some(&Ending { cause, errno, .. }) => Over { cause, errno, abrupt: true },
            None => Over { cause, errno: 0, abrupt: true },
        }
    }

    /// Returns when a timer has to look at the pair, if at all.
    pub fn wants_timer(&mut self) -> Option<u64> {
        let ends_at = self.ending.as_ref().map(|ending| ending.looks_at);
        let tells_at = self.directions[1].watch().and_then(|watch| watch.tells_at());
        let unloads_at = self.directions.iter().filter_map(Direction::unloads_at).min();
        let looks_at = self.directions[0].looks_at();
        ends_at.into_iter().chain(tells_at).chain(unloads_at).chain(looks_at).min()
    }

    /// Closes both sockets and tells of the end. Python may still have descriptors of them, so they leave the epoll set
    /// first.
    pub fn over(mut self, over: Over, epoll: &OwnedFd, turn: &mut Turn<'_>) {
        if self.directions.iter().any(Direction::waits) {
            self.unanswered |= DROPPED_AT_END;
        }
        for truncated in self.sealed.iter().flatten().filter_map(|sealed| sealed.truncated()) {
            self.unanswered |= match truncated {
                Truncated::BetweenFrames => ENDED_BETWEEN_FRAMES,
                Truncated::InsideFrame => ENDED_INSIDE_FRAME,
            };
        }
        if self.cut_off.contains(&true) {
            self.unanswered |= ENDED_INSIDE_FRAME;
        }
        let mut teller = Teller { pair: self.stats.id, events: turn.events };
        let held = [1, 0].map(|number: usize| self.directions[number].held_bytes() > 0);
        for (((socket, dead), cut), cut_off) in self.sockets.into_iter().zip(self.dead).zip(held).zip(self.cut_off) {
            let _ = sys::epoll_remove(epoll, socket.as_raw_fd());
            // A FIN would say that this is all.
            let cut = (cut && over.abrupt) || cut_off;
            if dead || !(cut || sys::unsent(socket.as_fd()) > LEFT_TO_THE_KERNEL) {
                continue;
            }
            if over.abrupt || cut_off {
                sys::reset_on_close(socket.as_fd());
            } else {
                // The close of a descriptor would not tell the peer that this is all: Python has another one.
                let _ = socket.shutdown(Shutdown::Write);
                teller.tell(Kind::Left, [socket.into_raw_fd() as u64, 0, 0, 0, 0]);
            }
        }
        if let Some(share) = turn.pool.as_mut() {
            for (direction, lane) in self.directions.iter_mut().zip(&self.stats.lanes) {
                direction.mute().end(lane, share);
            }
        }
        if let Some(watch) = self.directions[1].watch() {
            watch.tell_passed(&mut teller);
        }
        for lane in &self.stats.lanes {
            lane.set_held(0, 0);
        }
        let [to_broker, to_client] = &self.stats.lanes;
        let errno = u64::from(over.errno.unsigned_abs());
        let values = [over.cause as u64, errno, to_broker.bytes(), to_client.bytes(), self.unanswered];
        teller.tell(Kind::Ended, values);
    }
}
