//! The receive windows of relayed sockets: what the kernel may keep of a sender's bytes while their receiver stands still.
//!
//! Rule: a window is narrow until the receiver has taken `PROVEN_BYTES`. So those that never read hold little, and the
//! others have the kernel's autotuning. While the memory of all sockets is short
//! (`tight`), nothing is widened, and what holds more than it moved in a second is narrowed again: bytes that are there
//! already stay, but no more come.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;

use super::sys;

/// The size that is asked for; the kernel doubles a size.
pub const NARROW_BYTES: usize = 64 * 1024;
/// More than a receiver's own kernel takes for a program that does not read.
pub const PROVEN_BYTES: u64 = 1024 * 1024;
/// What all windows of an engine have in common.
#[derive(Default)]
pub struct Windows {
    tight: AtomicBool,
}

impl Windows {
    /// Says whether the memory of all sockets is short.
    pub fn set_tight(&self, tight: bool) {
        self.tight.store(tight, Relaxed);
    }

    fn tight(&self) -> bool {
        self.tight.load(Relaxed)
    }
}

/// The window of one socket.
#[derive(Default)]
pub struct Window {
    of: Option<Arc<Windows>>,
    /// The bytes in all from which on the window is wide; 0 if it is.
    proven_at: u64,
    seen: u64,
}

impl Window {
    /// Makes the window of a socket that was narrowed when its pair was made, or of one that was not.
    pub fn new(of: Option<&Arc<Windows>>, narrow: bool) -> Self {
        Window { of: of.cloned(), proven_at: if narrow && of.is_some() { PROVEN_BYTES } else { 0 }, seen: 0 }
    }

    /// Returns whether the window is narrow.
    pub fn is_narrow(&self) -> bool {
        self.proven_at != 0
    }

    /// Widens a narrow window if its receiver has taken enough; `taken` counts all bytes so far.
    pub fn prove(&mut self, taken: u64, socket: BorrowedFd<'_>) {
        if taken < self.proven_at {
            return;
        }
        if self.tight() {
            return;
        }
        // The kernel enlarges a window only when a round trip brings more than any before, and never beyond the clamp:
        // a narrow window that is only handed back stays narrow for ever. So it begins with what was taken.
        sys::set_receive_buffer(socket, PROVEN_BYTES as usize);
        sys::set_window_clamp(socket, PROVEN_BYTES as usize);
        sys::tune_receive_buffer(socket);
        self.proven_at = 0;
    }

    /// Takes the look of a second: `bytes` were read in all, and the socket holds `memory`. Returns what moved since the
    /// last look.
    pub fn look(&mut self, bytes: u64, memory: usize, socket: BorrowedFd<'_>) -> u64 {
        let moved = bytes - std::mem::replace(&mut self.seen, bytes);
        if self.tight() && !self.is_narrow() && moved < memory as u64 {
            // Less than what is there would drop segments that are on their way.
            sys::set_receive_buffer(socket, NARROW_BYTES.max(memory / 2));
            self.proven_at = bytes + PROVEN_BYTES;
        }
        moved
    }

    fn tight(&self) -> bool {
        self.of.as_ref().is_some_and(|windows| windows.tight())
    }
}
