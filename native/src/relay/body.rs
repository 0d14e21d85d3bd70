//! A frame on its way to one socket: a few bytes of its own, and pages of a file that the kernel sends without a copy.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use super::pair::LEFT_TO_THE_KERNEL;
use super::queue::{Cause, Event, Kind};
use super::sys;

/// A body moves so much in a turn, then others have theirs; as much as a pair.
pub const TURN_BYTES: u64 = 256 * 1024;
/// Progress is told in steps of this; who needs it sooner asks.
pub const TOLD_BYTES: u64 = 1024 * 1024;
/// A socket that is full although nothing is under way: the kernel lacks memory, and tells nobody when it has some.
pub const RETRY_MS: u64 = 10;

/// What Python may know of a body while a thread writes it.
pub struct Written {
    pub id: u64,
    pub thread: u32,
    position: AtomicU64,
}

impl Written {
    /// Makes the state of a body of which nothing has left.
    pub fn new(id: u64, thread: u32) -> Self {
        Written { id, thread, position: AtomicU64::new(0) }
    }

    /// Returns how many bytes of the body the kernel has taken.
    pub fn position(&self) -> u64 {
        self.position.load(Relaxed)
    }
}

/// A body that Python hands over. Both descriptors are the engine's own: whoever closes theirs changes nothing here.
pub struct Body {
    pub written: Arc<Written>,
    pub socket: OwnedFd,
    /// What is left of the bytes before the body.
    pub prefix: Vec<u8>,
    pub pages: OwnedFd,
    pub size: u64,
    /// The thread's epoll set has the socket.
    pub watched: bool,
    /// A timer is set for the next look.
    pub retrying: bool,
    pub queued: bool,
}

/// What a turn has come to.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Again,
    /// The socket is full; look again after so many ms, or (0) when the kernel says that it has room.
    Full(u64),
    Whole,
    Failed(i32),
}

impl Body {
    /// Sends until the socket is full or the turn is over.
    pub fn turn(&mut self, events: &mut Vec<Event>) -> Outcome {
        let began = self.written.position();
        let outcome = self.send(began);
        let position = self.written.position();
        if position / TOLD_BYTES > began / TOLD_BYTES && position < self.size {
            events.push(Event { kind: Kind::BodyMoved, pair: self.written.id, values: [position, 0, 0, 0, 0] });
        }
        outcome
    }

    fn send(&mut self, began: u64) -> Outcome {
        if let Some(outcome) = self.send_prefix() {
            return outcome;
        }
        let mut position = began;
        while position < self.size {
            let most = TURN_BYTES.saturating_sub(position - began).min(self.size - position);
            if most == 0 {
                return Outcome::Again;
            }
            match sys::send_pages(self.socket.as_fd(), self.pages.as_fd(), position, most as usize) {
                // Pages that end before the body does are nobody's fault but ours.
                Ok(0) => return Outcome::Failed(libc::EIO),
                Ok(count) => {
                    position += count as u64;
                    self.written.position.store(position, Relaxed);
                }
                Err(error) => {
                    if let Some(outcome) = self.stopped_by(&error) {
                        return outcome;
                    }
                }
            }
        }
        Outcome::Whole
    }

    /// Sends what is left of the prefix, for one segment with the body; returns why it did not leave as a whole.
    fn send_prefix(&mut self) -> Option<Outcome> {
        while !self.prefix.is_empty() {
            match sys::send_more(self.socket.as_fd(), &self.prefix) {
                Ok(count) => drop(self.prefix.drain(..count)),
                Err(error) => {
                    let outcome = self.stopped_by(&error);
                    if outcome.is_some() {
                        return outcome;
                    }
                }
            }
        }
        None
    }

    fn stopped_by(&self, error: &io::Error) -> Option<Outcome> {
        match error.kind() {
            io::ErrorKind::WouldBlock => Some(Outcome::Full(self.patience())),
            io::ErrorKind::Interrupted => None,
            _ => Some(Outcome::Failed(error.raw_os_error().unwrap_or(libc::EIO))),
        }
    }

    fn patience(&self) -> u64 {
        if sys::unsent(self.socket.as_fd()) == 0 {
            RETRY_MS
        } else {
            0
        }
    }

    /// Closes both descriptors, and returns the event that says so. `cause` is None for a body that left as a whole.
    pub fn over(self, cause: Option<Cause>, errno: i32, epoll: &OwnedFd) -> Event {
        if self.watched {
            // Python's own descriptor would keep the entry alive.
            let _ = sys::epoll_remove(epoll, self.socket.as_raw_fd());
        }
        if cause == Some(Cause::ByPython) && sys::unsent(self.socket.as_fd()) > LEFT_TO_THE_KERNEL {
            // Python has ended the connection, and may have looked before this thread's last bytes went in.
            sys::reset_on_close(self.socket.as_fd());
        }
        let cause = cause.map_or(0, |cause| cause as u64);
        let values = [self.written.position(), errno as u64, cause, 0, 0];
        Event { kind: Kind::BodyEnded, pair: self.written.id, values }
    }
}
