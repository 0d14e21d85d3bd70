//! What passes between Python's thread and the engine's: commands in, events out (`hand_over` has the queues).

use std::collections::{HashMap, HashSet, VecDeque};
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::body::Body;
pub use super::hand_over::lock;
use super::hand_over::{Inbox, Line, Outbox};
use super::slots::{Books, Hold};
use super::stats::Stats;
use super::windows::Windows;

/// What happened to a pair, in the order of the interface: kind, pair, and five values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub kind: Kind,
    pub pair: u64,
    pub values: [u64; 5],
}

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Kind {
    Frames = 1,
    Drained = 2,
    Inside = 3,
    Unwalkable = 4,
    Passed = 5,
    Ended = 6,
    ThreadDied = 7,
    /// A socket that is Python's from now on: the kernel has much to send for it.
    Left = 8,
    BodyMoved = 9,
    BodyEnded = 10,
    /// A PRODUCER waits for its slot: generation and producer; the topic is asked for.
    Producer = 16,
}

/// Why a pair ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Cause {
    ClientClosed = 1,
    BrokerClosed = 2,
    ClientReset = 3,
    BrokerReset = 4,
    WriteStalled = 5,
    ByPython = 6,
    Internal = 7,
}

/// Events that Python has not taken.
///
/// A connection that has ended gives its place back only when Python hears of the end, so ends do not wait behind the
/// questions of others. `insides`: the pairs whose INSIDE waits, each with the generation of the last that was left out.
#[derive(Default)]
pub struct Waiting {
    ends: VecDeque<Event>,
    others: VecDeque<Event>,
    insides: HashMap<u64, u64>,
}

impl Line<Event> for Waiting {
    fn is_empty(&self) -> bool {
        self.ends.is_empty() && self.others.is_empty()
    }

    /// Adds events. Of a pair that has ended, whatever waits moves in front of its end: their order is kept.
    fn append(&mut self, from: &mut Vec<Event>) {
        let ended: HashSet<u64> =
            from.iter().filter(|event| event.kind == Kind::Ended).map(|event| event.pair).collect();
        for event in from.drain(..) {
            if event.kind == Kind::ThreadDied {
                self.ends.push_back(event);
            } else if !self.left_out(&event) {
                self.others.push_back(event);
            }
        }
        if !ended.is_empty() {
            let others = mem::take(&mut self.others).into_iter();
            let (ends, others): (Vec<_>, Vec<_>) = others.partition(|event| ended.contains(&event.pair));
            self.ends.extend(ends);
            self.others = others.into();
        }
    }

    fn pop(&mut self) -> Option<Event> {
        let event = self.ends.pop_front().or_else(|| self.others.pop_front())?;
        if event.kind == Kind::Inside {
            self.insides.remove(&event.pair);
        }
        Some(event)
    }
}

impl Waiting {
    /// Returns whether an event is left out: one INSIDE of a pair waits at most, or a thread that tells of INSIDE and
    /// DRAINED without an answer between would fill the queue.
    fn left_out(&mut self, event: &Event) -> bool {
        let generation = event.values[0];
        match event.kind {
            Kind::Inside => self.insides.insert(event.pair, NONE_LEFT_OUT).is_some_and(|_| {
                self.insides.insert(event.pair, generation);
                true
            }),
            Kind::Drained => self.insides.get(&event.pair) == Some(&generation),
            _ => false,
        }
    }
}

/// Generations begin with 1.
const NONE_LEFT_OUT: u64 = 0;

/// Events of all threads, for Python's loop.
pub type EventQueue = Outbox<Event, Waiting>;

/// A pair that Python hands over.
pub struct Joined {
    pub stats: Arc<Stats>,
    pub client: OwnedFd,
    pub broker: OwnedFd,
    pub to_client: Vec<u8>,
    pub to_broker: Vec<u8>,
    pub scan: bool,
    /// The books that count what the client sends, and their time at the zero of the engine's clock.
    pub counted: Option<(Arc<Books>, f64)>,
    /// The broker's window is narrow; None if windows are left alone.
    pub windows: Option<Arc<Windows>>,
    pub linger: Linger,
}

/// How long a pair that ends may send what is held, in ms: Python says so, by the rules of its ended sockets.
#[derive(Clone, Copy, Debug)]
pub struct Linger {
    /// Without a byte that its peer takes.
    pub stall_ms: u64,
    /// In all.
    pub longest_ms: u64,
}

/// What a thread is asked to do. A command for a pair or a body that has ended is ignored.
pub enum Command {
    Join(Box<Joined>),
    /// Look at the pair again: a reason not to read is gone.
    Look(u64),
    /// The frames of this generation may pass.
    Pass(u64, u64),
    /// Send what is held and close, at the latest when nobody has taken any of it for this many ms.
    Close(u64, u64),
    Abort(u64),
    Write(Box<Body>),
    /// Let go of a body: nobody waits for it any more.
    EndWrite(u64),
    /// Close the last descriptor of pages: the kernel frees them in this call.
    ClosePages(OwnedFd),
    /// The PRODUCER of this generation belongs to a slot.
    Assign(u64, u64, Hold),
    /// Pass one frame, or (true) one read, although reasons pause the direction.
    Drip(u64, usize, bool),
    /// Look how much waits to be read from the client.
    Measure(u64),
    /// A rate has changed: whoever waits for tokens looks again.
    Rates,
    Stop,
    /// Panic while the pair has its turn, or (0) outside a pair: tests only.
    #[cfg(test)]
    Panic(u64),
    /// Tell the thread's processor time, in microseconds.
    #[cfg(test)]
    Cpu(std::sync::mpsc::Sender<u64>),
    /// Do nothing until the test says so, or lets go of its end.
    #[cfg(test)]
    Hold(std::sync::mpsc::Receiver<()>),
}

/// Commands for one thread.
pub type CommandQueue = Inbox<Command>;
