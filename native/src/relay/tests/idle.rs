//! Pairs that have nothing to do cost nothing.

use std::io::Write;
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use super::{fill, noise, Joined, Stand};
use crate::relay::queue::Command;

/// 1 % of a core.
const MOST_MICROS_A_SECOND: u64 = 10_000;
/// A thread that waits goes round once a second, to say that it lives; twice that, a timer or two, and the rounds in which
/// the sockets of a thousand pairs are weighed.
const MOST_ROUNDS_A_SECOND: u64 = 4 + 1_000 / 125;

fn assert_quiet(stand: &Stand) {
    // Stuck pipes are given back after a second, once.
    thread::sleep(Duration::from_millis(1_500));
    let (before, rounds) = (stand.cpu_micros(0), stand.engine.rounds()[0]);
    thread::sleep(Duration::from_secs(1));
    let (burnt, gone_round) = (stand.cpu_micros(0) - before, stand.engine.rounds()[0] - rounds);
    assert!(burnt < MOST_MICROS_A_SECOND, "{burnt} us in a second");
    // Holds on a busy machine, too, where a second may be longer.
    assert!(gone_round <= MOST_ROUNDS_A_SECOND, "{gone_round} rounds in a second");
}

#[test]
fn tcp_pairs_paused_and_half_closed_burn_no_processor_time() {
    let stand = Stand::new(1);
    let mut pairs: Vec<Joined> = (0..50).map(|_| stand.join()).collect();
    for (index, pair) in pairs.iter_mut().enumerate() {
        stand.engine.pause(pair.id, 1, 2);
        if index % 2 == 0 {
            pair.client.shutdown(Shutdown::Write).unwrap();
        }
        pair.broker.write_all(b"unread").unwrap();
        if index % 3 == 0 {
            pair.broker.shutdown(Shutdown::Write).unwrap();
        }
        if index == 0 {
            fill(&mut pair.broker.try_clone().unwrap(), &noise(10));
        }
    }
    assert_quiet(&stand);
}

#[test]
fn a_thread_that_stands_still_is_told_by_its_beat_and_its_rounds() {
    let stand = Stand::new(2);
    let (until, held) = std::sync::mpsc::channel();
    stand.engine.tell_thread(0, Command::Hold(held));
    // The last round is the one that stands still; a beat of the engine comes once a second.
    while stand.engine.beats()[0] < 2_500 {
        thread::sleep(Duration::from_millis(10));
    }
    let rounds = stand.engine.rounds();
    while stand.engine.rounds()[1] == rounds[1] {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(stand.engine.rounds()[0], rounds[0]);
    drop(until);
    while stand.engine.rounds()[0] == rounds[0] {
        thread::sleep(Duration::from_millis(1));
    }
}
