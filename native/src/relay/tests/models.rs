//! Every order of steps in which two or three threads can use the hand-over queues (loom): a wait that nothing ends is a
//! deadlock, which loom reports as such.

use loom::model;
use loom::sync::Arc;
use loom::thread::spawn;

use super::hand_over::{Inbox, Outbox, Reasons};

const WATCH: u32 = 1;
const POOL: u32 = 2;
const RATE: u32 = 8;

/// What a thread is asked to do: to look at a pair, or to stop.
#[derive(Debug)]
enum Command {
    Look(u64),
    Stop,
}

type CommandQueue = Inbox<Command>;
/// The number of a thread, and which of its events this is.
type EventQueue = Outbox<(u64, u64)>;

/// Returns the pair that a command is about; None for the order to stop.
fn pair_of(command: &Command) -> Option<u64> {
    match command {
        Command::Look(pair) => Some(*pair),
        Command::Stop => None,
    }
}

/// A thread of the engine: obeys until it is told to stop, then refuses; returns the pairs of all commands that it got.
fn obey(inbox: &CommandQueue) -> Vec<u64> {
    let (mut seen, mut commands, mut pairs, mut stopping) = (0, Vec::new(), Vec::new(), false);
    while !stopping {
        seen = inbox.bell().wait_for_edge(seen);
        inbox.take(&mut commands);
        for command in commands.drain(..) {
            stopping |= matches!(command, Command::Stop);
            pairs.extend(pair_of(&command));
        }
    }
    pairs.extend(inbox.close().iter().filter_map(pair_of));
    pairs
}

#[test]
fn every_command_is_obeyed_or_given_back() {
    model(|| {
        let inbox = Arc::new(CommandQueue::new().unwrap());
        let given = Arc::clone(&inbox);
        let thread = spawn(move || obey(&given));
        let other = Arc::clone(&inbox);
        let sender = spawn(move || other.send(Command::Look(1)).is_ok());
        let accepted = inbox.send(Command::Look(2)).is_ok();
        // An order to stop that comes first closes the queue under the others.
        assert!(inbox.send(Command::Stop).is_ok());
        let mut expected: Vec<u64> = [(1, sender.join().unwrap()), (2, accepted)]
            .into_iter()
            .filter_map(|(pair, accepted)| accepted.then_some(pair))
            .collect();
        let mut obeyed = thread.join().unwrap();
        obeyed.sort_unstable();
        expected.sort_unstable();
        assert_eq!(obeyed, expected);
    });
}

#[test]
fn commands_of_one_sender_stay_in_order() {
    model(|| {
        let inbox = Arc::new(CommandQueue::new().unwrap());
        let given = Arc::clone(&inbox);
        let thread = spawn(move || obey(&given));
        for pair in 1..=3 {
            assert!(inbox.send(Command::Look(pair)).is_ok());
        }
        assert!(inbox.send(Command::Stop).is_ok());
        assert_eq!(thread.join().unwrap(), [1, 2, 3]);
    });
}

#[test]
fn every_event_is_told_once_and_in_the_order_of_its_thread() {
    model(|| {
        let outbox = Arc::new(EventQueue::new().unwrap());
        let threads: Vec<_> = (1..=2)
            .map(|pair| {
                let outbox = Arc::clone(&outbox);
                spawn(move || {
                    for number in 1..=pair {
                        outbox.append(&mut vec![(pair, number)]);
                    }
                })
            })
            .collect();
        let mut told = Vec::new();
        while told.len() < 3 {
            outbox.bell().wait();
            // Steps smaller than what waits: the bell must go on ringing.
            let events = outbox.take(1);
            assert!(events.len() <= 1);
            told.extend(events);
        }
        for thread in threads {
            thread.join().unwrap();
        }
        for pair in 1..=2 {
            let numbers: Vec<u64> = told.iter().filter(|event| event.0 == pair).map(|event| event.1).collect();
            assert_eq!(numbers, (1..=pair).collect::<Vec<u64>>());
        }
        // One wake-up for nothing is allowed, none that lasts.
        assert!(outbox.take(1).is_empty());
        assert!(!outbox.bell().readable());
    });
}

#[test]
fn whoever_removes_the_last_reason_wakes_the_thread_and_nobody_else_does() {
    model(|| {
        let inbox = Arc::new(CommandQueue::new().unwrap());
        let reasons = Arc::new(Reasons::default());
        reasons.add(POOL | RATE);
        let resumed: Vec<_> = [POOL, RATE]
            .into_iter()
            .map(|reason| {
                let (inbox, reasons) = (Arc::clone(&inbox), Arc::clone(&reasons));
                spawn(move || {
                    let last = reasons.remove(reason, 0);
                    if last {
                        assert!(inbox.send(Command::Look(7)).is_ok());
                    }
                    last
                })
            })
            .collect();
        // The thread rests until it is told to look, and then finds no reason.
        inbox.bell().wait_for_edge(0);
        let mut commands = Vec::new();
        inbox.take(&mut commands);
        assert_eq!(commands.iter().filter_map(pair_of).collect::<Vec<u64>>(), [7]);
        assert_eq!(reasons.all(), 0);
        let wakers = resumed.into_iter().map(|thread| thread.join().unwrap()).filter(|&last| last).count();
        assert_eq!(wakers, 1);
    });
}

#[test]
fn a_reason_of_the_engine_and_one_of_python_lose_no_wake_up() {
    model(|| {
        let inbox = Arc::new(CommandQueue::new().unwrap());
        let reasons = Arc::new(Reasons::default());
        let (to, of) = (Arc::clone(&inbox), Arc::clone(&reasons));
        let python = spawn(move || {
            of.add(RATE);
            if of.remove(RATE, 0) {
                assert!(to.send(Command::Look(7)).is_ok());
            }
        });
        // The thread: a frame waits, its answer comes; what still pauses the direction then is Python's to end.
        reasons.add(WATCH);
        reasons.remove(WATCH, 0);
        if reasons.all() != 0 {
            inbox.bell().wait_for_edge(0);
        }
        python.join().unwrap();
        assert_eq!(reasons.all(), 0);
    });
}
