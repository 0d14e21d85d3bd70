//! What passes between Python's thread and the engine's: commands in, events out (`hand_over` has the queues).

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::body::Body;
pub use super::hand_over::lock;
use super::hand_over::{Inbox, Line, Outbox};
use super::slots::{Books, Hold};
use super::stats::Stats;
use super::tap::Tapped;
use super::windows::Windows;
use crate::tls::Session;

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
    /// Commands of a pair that is tapped wait to be taken.
    Commands = 11,
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
    /// A stream of TLS was cut off inside a frame.
    Cut = 8,
    Tls = 9,
}

/// Events that Python has not taken.
///
/// A connection that has ended gives its place back only when Python hears of the end, so ends do not wait behind the
/// questions of others. The events of a pair are a list through `others`, which begins with the event number `began`:
/// so an end costs as many steps as its pair has events, however many of others wait.
/// `insides`: the pairs whose INSIDE waits, each with the generation of the last that was left out.
#[derive(Default)]
pub struct Waiting {
    ends: VecDeque<Event>,
    others: VecDeque<Place>,
    began: u64,
    /// The first and the last number of each pair that has events in `others`.
    of_pairs: HashMap<u64, (u64, u64)>,
    insides: HashMap<u64, u64>,
}

/// An event, unless it has left before its turn, and the number of the next of its pair.
struct Place {
    event: Option<Event>,
    next: u64,
}

impl Line<Event> for Waiting {
    fn is_empty(&self) -> bool {
        self.ends.is_empty() && self.of_pairs.is_empty()
    }

    /// Adds events. Of a pair that has ended, whatever waits moves in front of its end: their order is kept.
    fn append(&mut self, from: &mut Vec<Event>) {
        for event in from.drain(..) {
            match event.kind {
                Kind::ThreadDied => self.ends.push_back(event),
                Kind::Ended => {
                    self.hurry(event.pair);
                    self.ends.push_back(event);
                }
                _ if self.left_out(&event) => {}
                _ => self.add(event),
            }
        }
    }

    fn pop(&mut self) -> Option<Event> {
        let event = self.ends.pop_front().or_else(|| self.pop_other())?;
        if event.kind == Kind::Inside {
            self.insides.remove(&event.pair);
        }
        Some(event)
    }
}

impl Waiting {
    fn add(&mut self, event: Event) {
        let number = self.began + self.others.len() as u64;
        let (_, last) = self.of_pairs.entry(event.pair).or_insert((number, number));
        let before = mem::replace(last, number);
        if before != number {
            self.others[(before - self.began) as usize].next = number;
        }
        self.others.push_back(Place { event: Some(event), next: number });
    }

    fn pop_other(&mut self) -> Option<Event> {
        loop {
            let Place { event, next } = self.others.pop_front()?;
            let number = self.began;
            self.began += 1;
            let Some(event) = event else {
                continue;
            };
            if next == number {
                self.of_pairs.remove(&event.pair);
            } else if let Some((first, _)) = self.of_pairs.get_mut(&event.pair) {
                *first = next;
            }
            return Some(event);
        }
    }

    /// Moves all events of a pair to the ends.
    fn hurry(&mut self, pair: u64) {
        let Some((mut number, last)) = self.of_pairs.remove(&pair) else {
            return;
        };
        loop {
            let place = &mut self.others[(number - self.began) as usize];
            self.ends.extend(place.event.take());
            if number == last {
                break;
            }
            number = place.next;
        }
        // Empty places do not outlive the events that they stood between.
        while self.others.front().is_some_and(|place| place.event.is_none()) {
            self.others.pop_front();
            self.began += 1;
        }
    }

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
    /// The sessions of the sides that speak TLS.
    pub sessions: [Option<Box<Session>>; 2],
    pub scan: bool,
    /// The books that count what the client sends, and their time at the zero of the engine's clock.
    pub counted: Option<(Arc<Books>, f64)>,
    /// Where commands wait for Python's log.
    pub tapped: Option<Arc<Tapped>>,
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
