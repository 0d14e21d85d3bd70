//! The relay engine: pairs of sockets whose bytes are moved by threads that never take the interpreter lock.
//!
//! Who does what: `python` is the interface, `engine` starts threads and keeps the list of pairs, a `worker` is one
//! thread with its epoll set, a `pair` is a client and its broker, a `direction` moves the bytes one way, a
//! `body` is a topic list on its way to a client.
//! A `meter` counts what a client sends, as `producers` finds it, in the books of `slots`.
//! Commands go in and events come out through `queue`; counters are read through `stats` without a lock.

pub mod body;
pub mod bulk;
pub mod direction;
pub mod engine;
pub mod hand_over;
pub mod held;
pub mod meter;
pub mod pair;
pub mod pipes;
pub mod pool;
pub mod producers;
#[cfg(feature = "python")]
pub mod python;
pub mod queue;
pub mod scanner;
pub mod slots;
pub mod stats;
mod sync;
pub mod sys;
pub mod watch;
pub mod weights;
pub mod windows;
pub mod worker;

#[cfg(test)]
mod tests;
