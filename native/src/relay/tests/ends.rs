//! How pairs end, beyond what whole proxies show (tests/integration/test_half_closed_relays.py, test_ended_relays.py).

use std::io::Write;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::{fill, noise, read, read_all, reset, tcp, Stand};
use crate::relay::queue::{Cause, Command, Kind};

fn cause(values: [u64; 5]) -> u64 {
    values[0]
}

#[test]
fn a_close_goes_on_while_its_peer_takes_bytes() {
    let stand = Stand::new(1);
    let mut pair = stand.join();
    let bytes = noise(40_000_000);
    fill(&mut pair.broker, &bytes);
    let passed = stand.record(&pair).to_client_bytes as usize;
    stand.send(&pair, Command::Close(pair.id, 1_000));
    let mut got = Vec::new();
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1_500) {
        got.extend_from_slice(&read(&mut pair.client, 10_000));
        thread::sleep(Duration::from_millis(20));
    }
    got.extend_from_slice(&read_all(&mut pair.client));
    assert!(got == bytes[..passed]);
}

#[test]
fn another_descriptor_of_a_socket_keeps_no_event_alive() {
    let mut stand = Stand::new(1);
    let (near, far) = tcp();
    let ours = near.try_clone().unwrap();
    let pair = stand.join_sockets((near, far), tcp(), b"", b"", false);
    stand.until(&pair, |_| stand.engine.watched(0) == 3);
    stand.send(&pair, Command::Abort(pair.id));
    stand.expect(Kind::Ended, &pair);
    assert_eq!(stand.engine.watched(0), 1);
    (&pair.client).write_all(b"x").unwrap();
    assert_eq!(read(&mut { ours }, 1), b"x");
}

#[test]
fn what_a_side_sent_before_its_reset_is_read_although_both_are_seen_at_once() {
    // Many small reads, so that one turn does not do.
    let mut stand = Stand::with_buffer(1, 4_096);
    let mut pair = stand.join();
    let bytes = noise(60_000);
    let (go_on, held) = mpsc::channel();
    stand.engine.tell_thread(0, Command::Hold(held));
    pair.broker.write_all(&bytes).unwrap();
    reset(pair.broker);
    drop(go_on);
    assert!(read_all(&mut pair.client) == bytes);
    let values = stand.next().values;
    assert_eq!((values[0], values[3]), (Cause::BrokerReset as u64, 60_000));
}

#[test]
fn a_panic_ends_its_pair_only() {
    let mut stand = Stand::new(1);
    let (mut bad, mut good) = (stand.join(), stand.join());
    stand.send(&bad, Command::Panic(bad.id));
    assert_eq!(cause(stand.expect(Kind::Ended, &bad)), Cause::Internal as u64);
    assert_eq!(read_all(&mut bad.client), b"");
    good.client.write_all(b"alive").unwrap();
    assert_eq!(read(&mut good.broker, 5), b"alive");
}

#[test]
fn a_panic_over_the_bytes_of_the_handshake_ends_the_new_pair_only() {
    let mut stand = Stand::new(1);
    let mut good = stand.join();
    // Numbers count up, and a command is obeyed before those behind it.
    let next = good.id + 1;
    stand.engine.tell_thread(0, Command::Panic(next));
    let mut bad = stand.join_with(b"to the client", b"to the broker", true);
    assert_eq!(bad.id, next);
    assert_eq!(cause(stand.expect(Kind::Ended, &bad)), Cause::Internal as u64);
    assert_eq!((read_all(&mut bad.client), read_all(&mut bad.broker)), (vec![], vec![]));
    good.client.write_all(b"alive").unwrap();
    assert_eq!(read(&mut good.broker, 5), b"alive");
    assert_eq!(stand.engine.burdens()[0].1, 1, "the pair was counted as gone");
}

#[test]
fn a_panic_over_a_command_for_a_pair_ends_that_pair_only() {
    for command in [|id: u64| Command::Pass(id, 1), |id: u64| Command::Close(id, 0)] {
        let mut stand = Stand::new(1);
        let (mut bad, mut good) = (stand.join(), stand.join());
        let (go_on, held) = mpsc::channel();
        stand.engine.tell_thread(0, Command::Hold(held));
        stand.engine.tell_thread(0, Command::Panic(bad.id));
        stand.send(&bad, command(bad.id));
        drop(go_on);
        assert_eq!(cause(stand.expect(Kind::Ended, &bad)), Cause::Internal as u64);
        assert_eq!(read_all(&mut bad.client), b"");
        good.client.write_all(b"alive").unwrap();
        assert_eq!(read(&mut good.broker, 5), b"alive");
    }
}

#[test]
fn a_panic_outside_a_pair_is_told_and_ends_the_thread() {
    let mut stand = Stand::new(2);
    let mut pair = stand.join();
    let index = stand.record(&pair).thread as usize;
    stand.engine.tell_thread(index, Command::Panic(0));
    let event = stand.next();
    assert_eq!((event.kind, event.values[0]), (Kind::ThreadDied, index as u64));
    assert_eq!(read_all(&mut pair.client), b"");
    stand.engine.stop();
}
