//! What the hand-over queues are built of: the standard library's locks and an eventfd, or loom's models of them.
//!
//! With the feature `loom` nothing but queues and reasons to pause is compiled (`modelled.rs`), and their tests run every order
//! of steps that two or three threads can take (`tests/models.rs`).

#[cfg(feature = "loom")]
pub use self::model::Bell;
#[cfg(not(feature = "loom"))]
pub use self::real::Bell;
#[cfg(feature = "loom")]
pub use loom::sync::{atomic, Mutex, MutexGuard};
#[cfg(not(feature = "loom"))]
pub use std::sync::{atomic, Mutex, MutexGuard};

#[cfg(not(feature = "loom"))]
mod real {
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd, RawFd};

    use crate::relay::sys;

    /// Wakes who waits for something in a queue: an eventfd.
    pub struct Bell(OwnedFd);

    impl Bell {
        /// Makes a bell that was not rung.
        pub fn new() -> io::Result<Self> {
            sys::eventfd().map(Bell)
        }

        /// Returns the descriptor that is readable from `ring` until `clear`; each `ring` is an edge.
        pub fn fd(&self) -> RawFd {
            self.0.as_raw_fd()
        }

        /// Wakes.
        pub fn ring(&self) {
            sys::wake(&self.0);
        }

        /// Forgets that the bell was rung.
        pub fn clear(&self) {
            sys::clear(&self.0);
        }
    }
}

#[cfg(feature = "loom")]
mod model {
    use std::io;

    use loom::sync::{Condvar, Mutex};

    /// The eventfd of the models: its counter, and how many edges an epoll set would have seen.
    pub struct Bell {
        state: Mutex<(u64, u64)>,
        rung: Condvar,
    }

    impl Bell {
        /// Makes a bell that was not rung.
        pub fn new() -> io::Result<Self> {
            Ok(Bell { state: Mutex::new((0, 0)), rung: Condvar::new() })
        }

        /// Wakes.
        pub fn ring(&self) {
            let mut state = self.state.lock().unwrap();
            *state = (state.0 + 1, state.1 + 1);
            self.rung.notify_all();
        }

        /// Forgets that the bell was rung.
        pub fn clear(&self) {
            self.state.lock().unwrap().0 = 0;
        }

        /// Waits until the descriptor would be readable, as Python's loop does (level-triggered).
        pub fn wait(&self) {
            let mut state = self.state.lock().unwrap();
            while state.0 == 0 {
                state = self.rung.wait(state).unwrap();
            }
        }

        /// Returns whether the descriptor would be readable.
        pub fn readable(&self) -> bool {
            self.state.lock().unwrap().0 > 0
        }

        /// Waits for an edge behind the first `seen`, as the engine's threads do, and returns how many there were.
        pub fn wait_for_edge(&self, seen: u64) -> u64 {
            let mut state = self.state.lock().unwrap();
            while state.1 == seen {
                state = self.rung.wait(state).unwrap();
            }
            state.1
        }
    }
}
