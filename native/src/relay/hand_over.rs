//! Hand over values from thread to thread: many to one, with a bell. No lock is held across a system call.
//!
//! `tests/models.rs` proves these queues and the reasons to pause in every order of steps (feature `loom`), so that this
//! file knows neither commands nor events.

use std::collections::VecDeque;
use std::marker::PhantomData;
#[cfg(not(feature = "loom"))]
use std::os::fd::RawFd;
use std::sync::PoisonError;
use std::{io, iter, mem};

use super::sync::atomic::{AtomicU32, Ordering::Relaxed};
use super::sync::{Bell, Mutex, MutexGuard};

/// Locks even after a panic of another holder: the data are plain lists, whole at every step.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The order in which values of an outbox leave.
pub trait Line<T>: Default {
    /// Moves values into the line.
    fn append(&mut self, from: &mut Vec<T>);
    /// Takes the next value.
    fn pop(&mut self) -> Option<T>;
    /// Returns whether nothing waits.
    fn is_empty(&self) -> bool;
}

impl<T> Line<T> for VecDeque<T> {
    fn append(&mut self, from: &mut Vec<T>) {
        self.extend(from.drain(..));
    }

    fn pop(&mut self) -> Option<T> {
        self.pop_front()
    }

    fn is_empty(&self) -> bool {
        VecDeque::is_empty(self)
    }
}

/// Values of all threads for one loop, whose descriptor is level-triggered.
pub struct Outbox<T, L = VecDeque<T>> {
    values: Mutex<L>,
    ready: Bell,
    of: PhantomData<fn() -> T>,
}

impl<T, L: Line<T>> Outbox<T, L> {
    /// Makes an empty queue.
    pub fn new() -> io::Result<Self> {
        Ok(Outbox { values: Mutex::new(L::default()), ready: Bell::new()?, of: PhantomData })
    }

    /// Returns the descriptor that is readable while values wait.
    #[cfg(not(feature = "loom"))]
    pub fn fd(&self) -> RawFd {
        self.ready.fd()
    }

    /// Returns what wakes the loop.
    #[cfg(feature = "loom")]
    pub fn bell(&self) -> &Bell {
        &self.ready
    }

    /// Moves values into the queue.
    pub fn append(&self, from: &mut Vec<T>) {
        if from.is_empty() {
            return;
        }
        let mut values = lock(&self.values);
        let first = values.is_empty();
        values.append(from);
        drop(values);
        // Who added to a queue that was not empty need not wake: the first has, or is about to.
        if first {
            self.ready.ring();
        }
    }

    /// Takes the next `most` values. The bell is cleared before, not after: a value that comes between the two steps
    /// must leave it rung.
    pub fn take(&self, most: usize) -> Vec<T> {
        self.ready.clear();
        let mut values = lock(&self.values);
        let taken = iter::from_fn(|| values.pop()).take(most).collect();
        let left = !values.is_empty();
        drop(values);
        if left {
            self.ready.ring();
        }
        taken
    }
}

struct Waiting<T> {
    closed: bool,
    values: Vec<T>,
}

/// Values for one thread, which can close the queue.
pub struct Inbox<T> {
    waiting: Mutex<Waiting<T>>,
    ready: Bell,
}

impl<T> Inbox<T> {
    /// Makes an empty queue.
    pub fn new() -> io::Result<Self> {
        Ok(Inbox { waiting: Mutex::new(Waiting { closed: false, values: Vec::new() }), ready: Bell::new()? })
    }

    /// Returns the descriptor that becomes readable, for an edge-triggered epoll set: nobody ever reads it empty.
    #[cfg(not(feature = "loom"))]
    pub fn fd(&self) -> RawFd {
        self.ready.fd()
    }

    /// Returns what wakes the thread.
    #[cfg(feature = "loom")]
    pub fn bell(&self) -> &Bell {
        &self.ready
    }

    /// Adds a value; gives it back if the thread has ended.
    pub fn send(&self, value: T) -> Result<(), T> {
        let mut waiting = lock(&self.waiting);
        if waiting.closed {
            return Err(value);
        }
        let first = waiting.values.is_empty();
        waiting.values.push(value);
        drop(waiting);
        if first {
            self.ready.ring();
        }
        Ok(())
    }

    /// Swaps all values into `into`, which must be empty: the two lists keep their memory.
    pub fn take(&self, into: &mut Vec<T>) {
        mem::swap(&mut lock(&self.waiting).values, into);
    }

    /// Accepts no more values, and returns those that came.
    pub fn close(&self) -> Vec<T> {
        let mut waiting = lock(&self.waiting);
        waiting.closed = true;
        mem::take(&mut waiting.values)
    }
}

/// Reasons not to read a direction, as bits. Several threads change them: no change may undo another's.
#[derive(Default)]
pub struct Reasons(AtomicU32);

impl Reasons {
    /// Adds reasons.
    pub fn add(&self, reasons: u32) {
        self.0.fetch_or(reasons, Relaxed);
    }

    /// Removes reasons; returns whether there were some and none is left but `ignored`: then somebody has to wake the
    /// thread.
    pub fn remove(&self, reasons: u32, ignored: u32) -> bool {
        let before = self.0.fetch_and(!reasons, Relaxed);
        before & reasons != 0 && before & !reasons & !ignored == 0
    }

    /// Returns the reasons that there are.
    pub fn all(&self) -> u32 {
        self.0.load(Relaxed)
    }
}
