//! The relay engine: pairs of sockets whose bytes are moved by threads that never take the interpreter lock.
//!
//! Who does what: `python` is the interface, `engine` starts threads and keeps the list of pairs, a `worker` is one
//! thread with its epoll set and its clock. A `pair` is a client and its broker: how long an end may take, and its cause,
//! are decided there. A `direction` moves the bytes one way: `bulk` says how many in a turn and whether they are spliced (`pipes`), `sealed` opens and seals
//! where a side speaks TLS, `held` has what the receiver did not take, `pool` charges for that, `windows` says what the kernel may keep, `weights` reads what it keeps.
//!
//! Frames for watchers: `scanner` finds them, `watch` stops them until Python answers. Topics: a `meter` counts what a
//! client sends, as `producers` finds it, in the books of `slots`. A `tap` has commands for the log. A `body` is a topic list on its way to a client.
//!
//! Commands go in and events come out through `queue`, on the queues of `hand_over` (built of `sync`, proven by
//! `modelled.rs`); counters are read through `stats` without a lock. In this folder only `sys` has unsafe code.
//! Numbers that Python has too are compared by `tests/unit/proxy/relay/test_numbers_of_both_languages.py`.

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
pub mod sealed;
pub mod slots;
pub mod stats;
mod sync;
pub mod sys;
pub mod tap;
pub mod watch;
pub mod weights;
pub mod windows;
pub mod worker;

#[cfg(test)]
mod tests;
