//! Pipes for `splice`, kept by one thread and lent to a direction only while bytes are in them.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

use super::sys;

/// Pages of pipes are limited per user (pipe-user-pages-soft: some 256 pipes of 256 KiB), for all processes together.
const MOST_PIPES: usize = 32;
/// Idle pipes that a thread keeps.
const KEPT_PIPES: usize = 4;
/// After a failure nothing is tried for this long: the limit is somebody else's to lift.
const RETRY_MS: u64 = 1_000;
/// Two pages; a smaller pipe would not be worth its system calls.
const SMALLEST_PIPE: usize = 8_192;

/// The kernel's default of pipe-max-size, for processes without privileges.
const LARGEST_PIPE: usize = 1024 * 1024;

/// A pipe and how many bytes are in it.
pub struct Pipe {
    read: File,
    write: OwnedFd,
    capacity: usize,
    filled: usize,
    alive: Arc<AtomicUsize>,
}

impl Pipe {
    /// Returns how many bytes are in the pipe.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Returns how many bytes may be in the pipe.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Moves bytes from a socket into the empty pipe; 0 is the socket's end.
    pub fn fill(&mut self, from: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
        let count = sys::splice(from, self.write.as_fd(), most.min(self.capacity - self.filled))?;
        self.filled += count;
        Ok(count)
    }

    /// Moves bytes from the pipe to a socket.
    pub fn empty(&mut self, to: BorrowedFd<'_>) -> io::Result<usize> {
        let count = sys::splice(self.read.as_fd(), to, self.filled)?;
        self.filled -= count;
        Ok(count)
    }

    /// Copies everything that is in the pipe, to free it for others; `into` has exactly that size.
    pub fn copy_out(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.read.read_exact(into)?;
        self.filled = 0;
        Ok(())
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Relaxed);
    }
}

/// The pipes of one thread. `alive` counts those that are lent, too, wherever a pair drops them.
pub struct PipePool {
    idle: Vec<Pipe>,
    alive: Arc<AtomicUsize>,
    size: usize,
    not_before: u64,
}

impl PipePool {
    /// Makes no pipe yet. A pipe has at most `most_bytes`: the kernel rounds sizes up to a power of two, this one down.
    pub fn new(most_bytes: usize) -> Self {
        let most_bytes = most_bytes.min(LARGEST_PIPE);
        let size = if most_bytes.is_power_of_two() { most_bytes } else { most_bytes.next_power_of_two() / 2 };
        PipePool { idle: Vec::new(), alive: Arc::default(), size, not_before: 0 }
    }

    /// Lends an empty pipe; None says: copy.
    pub fn take(&mut self, now: u64) -> Option<Pipe> {
        if let Some(pipe) = self.idle.pop() {
            return Some(pipe);
        }
        if self.size < SMALLEST_PIPE || now < self.not_before || self.alive.load(Relaxed) >= MOST_PIPES {
            return None;
        }
        match sys::pipe(self.size) {
            Ok((read, write, capacity)) => {
                self.alive.fetch_add(1, Relaxed);
                let capacity = capacity.min(self.size);
                Some(Pipe { read: read.into(), write, capacity, filled: 0, alive: Arc::clone(&self.alive) })
            }
            Err(_) => {
                self.not_before = now + RETRY_MS;
                None
            }
        }
    }

    /// Takes a pipe back; one that is not empty, or one too many, is closed.
    pub fn give_back(&mut self, pipe: Pipe) {
        if pipe.filled == 0 && self.idle.len() < KEPT_PIPES {
            self.idle.push(pipe);
        }
    }

    /// Returns how many pipes there are, lent ones included.
    pub fn alive(&self) -> usize {
        self.alive.load(Relaxed)
    }
}
