//! Pairs that have nothing to do cost nothing.

use std::io::Write;
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use super::{fill, noise, Joined, Stand};
use crate::relay::queue::Command;
use crate::relay::sys;

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

/// A thousand pairs, or as many as there are descriptors for: four a pair here, where the far ends are ours, too.
fn many(stand: &Stand) -> Vec<Joined> {
    let count = (sys::most_descriptors() / 10).min(1_000);
    (0..count).map(|_| stand.join_unix(false)).collect()
}

#[test]
fn pairs_at_rest_paused_and_half_closed_burn_no_processor_time() {
    let mut stand = Stand::new(1);
    let mut pairs = many(&stand);
    let count = pairs.len();
    for (index, pair) in pairs.iter_mut().enumerate() {
        match index % 5 {
            0 => {}
            1 => {
                // Paused, with bytes that wait in the kernel.
                stand.engine.pause(pair.id, 0, 2);
                pair.client.write_all(b"unread").unwrap();
            }
            2 => pair.client.shutdown(Shutdown::Write).unwrap(),
            3 => {
                // Both FINs, one of them behind a pause: the kernel calls that a hang-up.
                stand.engine.pause(pair.id, 1, 2);
                pair.client.shutdown(Shutdown::Write).unwrap();
                pair.broker.write_all(b"unread").unwrap();
                pair.broker.shutdown(Shutdown::Write).unwrap();
            }
            _ => {
                // Both receivers stopped.
                fill_quickly(&mut pair.client);
                fill_quickly(&mut pair.broker);
            }
        }
    }
    assert_quiet(&stand);
    assert_eq!(stand.engine.snapshot(0, usize::MAX).len(), count * crate::relay::stats::RECORD_BYTES);
    assert!(stand.next_within(0).is_none());
}

fn fill_quickly(socket: &mut std::net::TcpStream) {
    socket.set_nonblocking(true).unwrap();
    for _ in 0..200 {
        if socket.write(&[7; 65_536]).is_err() {
            thread::sleep(Duration::from_micros(100));
            if socket.write(&[7; 65_536]).is_err() {
                return;
            }
        }
    }
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

#[test]
fn a_snapshot_of_twenty_thousand_pairs_is_quick() {
    use crate::relay::stats::Stats;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    // Without sockets: what is measured is the reading of counters.
    let known: BTreeMap<u64, Arc<Stats>> = (0..20_000).map(|id| (id, Arc::new(Stats::new(id, 0, 0)))).collect();
    let quickest = (0..5)
        .map(|_| {
            // Processor time: a busy machine makes nothing else of it.
            let began = sys::thread_cpu_micros();
            let mut records = vec![[0; crate::relay::stats::RECORD_BYTES]; 20_000];
            known.values().zip(&mut records).for_each(|(stats, record)| stats.record(5).write(record));
            assert_ne!(records[19_999], records[0]);
            sys::thread_cpu_micros() - began
        })
        .min();
    // 10 ms are allowed; without optimization, as tests are built, this takes some ten times of what the library does.
    let most = if cfg!(debug_assertions) { 100_000 } else { 10_000 };
    assert!(quickest.unwrap() < most, "{quickest:?} us");
}
