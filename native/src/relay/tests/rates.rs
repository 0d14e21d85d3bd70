//! Limits of topics, and drips, beyond what a whole proxy shows (tests/integration/test_counted_relays.py).

use std::io::Write;
use std::time::Duration;

use super::producers::{answer, counted, pass, producer, send};
use super::{read, Joined, Random, Stand};
use crate::relay::queue::Command;
use crate::relay::slots::{TokenBucket, FLOORS};

const TOPIC: &[u8] = b"t";

/// A pair with a producer of slot 1, whose limit is `rate` bytes a second.
fn limited(stand: &mut Stand, rate: f64) -> Joined {
    let mut pair = counted(stand);
    pair.client.write_all(&producer(1, TOPIC)).unwrap();
    answer(stand, &pair, TOPIC, 1);
    read(&mut pair.broker, producer(1, TOPIC).len());
    stand.books.set_rate(1, [Some(rate), None], now());
    // No test waits until a pause is too long.
    stand.books.set_max_pause_ms(600_000);
    pair
}

/// Sends as much as the first tokens of a slow topic allow, and a little more.
fn drain(pair: &mut Joined) {
    pass(pair, &send(1, 1, 60_000));
    pass(pair, &send(1, 1, 6_000));
}

fn now() -> f64 {
    crate::relay::sys::monotonic_seconds()
}

/// Whether bytes come within a moment.
fn told(pair: &Joined) -> bool {
    pair.broker.set_nonblocking(true).unwrap();
    let mut came = false;
    for _ in 0..30 {
        std::thread::sleep(Duration::from_millis(1));
        came |= pair.broker.peek(&mut [0]).is_ok();
    }
    pair.broker.set_nonblocking(false).unwrap();
    came
}

fn paused(stand: &Stand, pair: &Joined, reasons: u32) {
    stand.until(pair, |record| record.pauses_to_broker == reasons);
}

#[test]
fn clients_of_topics_without_a_limit_go_on() {
    let mut stand = Stand::new(1);
    let mut pair = limited(&mut stand, 1.0);
    let mut other = counted(&mut stand);
    other.client.write_all(&producer(1, b"other")).unwrap();
    answer(&mut stand, &other, b"other", 2);
    read(&mut other.broker, producer(1, b"other").len());
    drain(&mut pair);
    paused(&stand, &pair, 8);
    pass(&mut other, &send(1, 1, 1_000_000));
}

#[test]
fn a_limit_of_messages_counts_batches() {
    let mut stand = Stand::new(1);
    let mut pair = limited(&mut stand, 1e9);
    stand.books.set_rate(1, [Some(1e9), Some(1.0)], now());
    pass(&mut pair, &send(1, 60, 100));
    assert_eq!(stand.record(&pair).pauses_to_broker, 0);
    pass(&mut pair, &send(1, 10, 100));
    paused(&stand, &pair, 8);
}

#[test]
fn a_frame_that_has_begun_is_passed_before_the_pause() {
    let mut stand = Stand::new(1);
    let mut pair = limited(&mut stand, 1.0);
    // More than a read, with bulk and without.
    pass(&mut pair, &send(1, 1, 1_000_000));
    paused(&stand, &pair, 8);
    assert_eq!(stand.books.counts().0, 0);
    pair.client.write_all(&send(1, 1, 10)).unwrap();
    assert!(!told(&pair));
}

#[test]
fn a_drip_waits_for_a_reason_that_it_does_not_ignore_and_two_are_one() {
    let mut stand = Stand::new(1);
    let mut pair = counted(&mut stand);
    let large = send(1, 1, 200_000);
    pass(&mut pair, &large);
    // The pool's reason is the second.
    stand.engine.pause(pair.id, 0, 4);
    stand.engine.pause(pair.id, 0, 2);
    let mut client = pair.client.try_clone().unwrap();
    let sent = large.repeat(2);
    let writer = std::thread::spawn(move || client.write_all(&sent).unwrap());
    stand.engine.send(pair.id, Command::Drip(pair.id, 0, false));
    stand.engine.send(pair.id, Command::Drip(pair.id, 0, false));
    assert!(!told(&pair));
    stand.engine.resume(pair.id, 0, 2);
    for _ in 0..2 {
        assert!(read(&mut pair.broker, large.len()) == large);
        assert!(!told(&pair));
        stand.engine.send(pair.id, Command::Drip(pair.id, 0, false));
    }
    writer.join().unwrap();
}

#[test]
fn a_whole_read_passes_in_a_pause_and_no_more_and_so_it_is_for_a_pair_that_is_not_counted() {
    let mut stand = Stand::new(1);
    for is_counted in [true, false] {
        stand.counts = is_counted;
        let mut pair = stand.join();
        stand.engine.pause(pair.id, 0, 4);
        let large = send(1, 1, super::BUFFER * 4);
        let mut client = pair.client.try_clone().unwrap();
        let sent = large.clone();
        let writer = std::thread::spawn(move || client.write_all(&sent).unwrap());
        std::thread::sleep(Duration::from_millis(20));
        let before = stand.record(&pair);
        stand.engine.send(pair.id, Command::Drip(pair.id, 0, is_counted));
        stand.until(&pair, |record| record.client_reads > before.client_reads);
        std::thread::sleep(Duration::from_millis(20));
        let record = stand.record(&pair);
        let passed = record.to_broker_bytes - before.to_broker_bytes;
        assert!(passed > 0 && passed <= super::BUFFER as u64);
        assert_eq!(record.pauses_to_broker, 4);
        stand.engine.resume(pair.id, 0, 4);
        assert!(read(&mut pair.broker, large.len()) == large);
        writer.join().unwrap();
    }
}

#[test]
fn a_client_that_waits_for_tokens_costs_nothing() {
    let mut stand = Stand::new(1);
    let mut pair = limited(&mut stand, 1.0);
    drain(&mut pair);
    paused(&stand, &pair, 8);
    pair.client.write_all(&send(1, 1, 10)).unwrap();
    let before = stand.cpu_micros(0);
    std::thread::sleep(Duration::from_millis(300));
    assert!(stand.cpu_micros(0) - before < 10_000);
}

#[test]
fn no_more_passes_than_the_rate_allows_for_any_changes_of_the_rate() {
    let mut random = Random(3);
    for round in 0..2_000 {
        let (mut bucket, mut now, mut allowed, mut passed) = (TokenBucket::new(FLOORS[0]), 5.0, 0.0, 0.0);
        let mut rate = 1.0 + random.below(10_000_000) as f64;
        let mut capacity = (0.25 * rate).max(FLOORS[0]);
        bucket.set_rate(Some(rate), now);
        for _ in 0..60 {
            let seconds = random.below(3_000) as f64 / 1_000.0;
            (now, allowed) = (now + seconds, allowed + rate * seconds);
            match random.below(4) {
                0 => {
                    rate = 1.0 + random.below(10_000_000) as f64;
                    capacity = capacity.max(0.25 * rate);
                    bucket.set_rate(Some(rate), now);
                }
                _ if bucket.ready_at(now) <= now => {
                    let size = random.below(5_000_000) as f64;
                    // What is debited last may be a debt.
                    assert!(passed <= allowed + capacity + 1e-3, "round {round}");
                    bucket.take(size, now);
                    passed += size;
                }
                _ => {}
            }
        }
    }
}
