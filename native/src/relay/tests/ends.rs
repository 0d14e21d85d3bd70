//! How pairs end, and what the other side still gets.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::{fill, is_reset, noise, read, read_all, reset, tcp, Joined, Stand, BUFFER, NO_LIMITS};
use crate::relay::engine::{Limits, Refused};
use crate::relay::queue::{Cause, Command, Kind, Linger};
use crate::relay::sys;

const PAUSED: u32 = 2;

fn cause(values: [u64; 5]) -> u64 {
    values[0]
}

#[test]
fn a_fin_passes_and_leaves_the_other_direction_open() {
    let mut stand = Stand::new(1);
    for (first, expected) in [(0, Cause::ClientClosed), (1, Cause::BrokerClosed)] {
        let Joined { id, client, broker } = stand.join();
        let (mut one, mut other) = if first == 0 { (client, broker) } else { (broker, client) };
        one.write_all(b"last words").unwrap();
        one.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut other), b"last words");
        other.write_all(b"still here").unwrap();
        assert_eq!(read(&mut one, 10), b"still here");
        assert_eq!(stand.engine.snapshot_of(id).unwrap().half_closed, 1 << first);
        other.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut one), b"");
        let values = stand.next().values;
        assert_eq!((cause(values), values[1]), (expected as u64, 0));
        assert_eq!((values[2], values[3]), (10, 10));
        assert!(stand.engine.snapshot_of(id).is_none());
    }
}

#[test]
fn a_fin_passes_behind_all_bytes_that_a_slow_receiver_has_still_to_take() {
    let mut stand = Stand::new(1);
    let mut pair = stand.join();
    let bytes = noise(30_000_000);
    let sent = fill(&mut pair.broker, &bytes);
    pair.broker.shutdown(Shutdown::Both).unwrap();
    assert!(read_all(&mut pair.client) == bytes[..sent]);
    drop(pair.client.shutdown(Shutdown::Write));
    assert_eq!(cause(stand.next().values), Cause::BrokerClosed as u64);
}

#[test]
fn a_fin_behind_a_pause_is_read_when_the_pause_ends() {
    let mut stand = Stand::new(1);
    let mut pair = stand.join();
    stand.engine.pause(pair.id, 0, PAUSED);
    pair.client.write_all(b"x").unwrap();
    drop(pair.client);
    assert!(stand.next_within(50).is_none());
    stand.engine.resume(pair.id, 0, PAUSED);
    assert_eq!(read_all(&mut pair.broker), b"x");
    drop(pair.broker);
    assert_eq!(cause(stand.next().values), Cause::ClientClosed as u64);
}

#[test]
fn both_fins_while_paused_lose_no_byte() {
    let mut stand = Stand::new(1);
    let mut pair = stand.join();
    stand.engine.pause(pair.id, 0, PAUSED);
    pair.broker.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut pair.client), b"");
    pair.client.write_all(b"unread").unwrap();
    pair.client.shutdown(Shutdown::Write).unwrap();
    assert!(stand.next_within(50).is_none());
    stand.engine.resume(pair.id, 0, PAUSED);
    assert_eq!(read_all(&mut pair.broker), b"unread");
    assert_eq!(cause(stand.next().values), Cause::BrokerClosed as u64);
}

#[test]
fn a_reset_is_noticed_also_while_reading_is_paused() {
    let mut stand = Stand::new(1);
    for paused in [false, true] {
        for side in [0, 1] {
            let Joined { id, client, broker } = stand.join();
            if paused {
                stand.engine.pause(id, 0, PAUSED);
                stand.engine.pause(id, 1, PAUSED);
            }
            let (one, mut other) = if side == 0 { (client, broker) } else { (broker, client) };
            reset(one);
            assert_eq!(read_all(&mut other), b"");
            let values = stand.next().values;
            let expected = if side == 0 { Cause::ClientReset } else { Cause::BrokerReset };
            assert_eq!((cause(values), values[1]), (expected as u64, libc::ECONNRESET as u64));
        }
    }
}

#[test]
fn a_reset_behind_a_fin_ends_the_pair() {
    let mut stand = Stand::new(1);
    let mut pair = stand.join();
    pair.client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut pair.broker), b"");
    reset(pair.client);
    assert_eq!(cause(stand.next().values), Cause::ClientReset as u64);
}

#[test]
fn what_is_held_is_still_sent_after_a_reset_of_the_other_side() {
    let mut stand = Stand::new(1);
    let mut pair = stand.join();
    let bytes = noise(40_000_000);
    fill(&mut pair.broker, &bytes);
    let passed = stand.record(&pair).to_client_bytes as usize;
    assert!(stand.record(&pair).held_for_client > 0);
    reset(pair.broker);
    assert!(stand.next_within(100).is_none());
    let got = read_all(&mut pair.client);
    assert!(got.len() >= passed && got == bytes[..got.len()]);
    assert_eq!(cause(stand.next().values), Cause::BrokerReset as u64);
}

#[test]
fn a_close_sends_what_is_held() {
    let mut stand = Stand::new(1);
    let mut pair = stand.join();
    let bytes = noise(40_000_000);
    fill(&mut pair.broker, &bytes);
    let passed = stand.record(&pair).to_client_bytes as usize;
    stand.send(&pair, Command::Close(pair.id, 20_000));
    assert!(stand.next_within(50).is_none());
    assert!(read_all(&mut pair.client) == bytes[..passed]);
    let values = stand.expect(Kind::Ended, &pair);
    assert_eq!((values[0], values[3]), (Cause::ByPython as u64, passed as u64));
}

#[test]
fn a_socket_with_much_unsent_is_left_to_python_and_its_peer_gets_all_and_a_fin() {
    let mut stand = Stand::new(1);
    let mut pair = stand.join();
    let bytes = noise(2_000_000);
    pair.broker.write_all(&bytes[..1_500_000]).unwrap();
    stand.until(&pair, |record| record.to_client_bytes == 1_500_000 && record.held_for_client == 0);
    reset(pair.broker);
    assert_eq!(cause(stand.next().values), Cause::BrokerReset as u64);
    assert_eq!(stand.left.len(), 1);
    assert!(sys::unsent(stand.left[0].as_fd()) > 64 * 1024);
    assert!(read_all(&mut pair.client) == bytes[..1_500_000]);
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

/// A stand whose pairs end when nobody has taken a byte for `stall_ms`.
fn lingering(stall_ms: u64, longest_ms: u64) -> Stand {
    Stand::limited(1, BUFFER, Limits { linger: Linger { stall_ms, longest_ms }, ..NO_LIMITS })
}

#[test]
fn a_peer_of_a_failed_side_that_takes_nothing_is_reset_by_the_clock_that_python_gave() {
    let mut stand = lingering(100, 600_000);
    let mut pair = stand.join();
    fill(&mut pair.broker, &noise(40_000_000));
    reset(pair.broker);
    assert_eq!(cause(stand.next().values), Cause::BrokerReset as u64);
    assert!(is_reset(&mut pair.client));
}

#[test]
fn a_peer_of_a_failed_side_may_take_its_time_but_not_for_ever() {
    let mut stand = lingering(600_000, 300);
    let mut pair = stand.join();
    fill(&mut pair.broker, &noise(40_000_000));
    let began = Instant::now();
    reset(pair.broker);
    assert_eq!(cause(stand.next().values), Cause::BrokerReset as u64);
    assert!(began.elapsed() >= Duration::from_millis(299));
    assert!(is_reset(&mut pair.client));
}

#[test]
fn a_fin_behind_bytes_that_wait_is_told_and_so_is_what_the_receiver_has_to_take() {
    let stand = Stand::new(1);
    let mut pair = stand.join();
    assert_eq!(stand.record(&pair).untaken_bytes, 0);
    let bytes = noise(64 * 1024);
    // A window that is shut would hold up the FIN.
    while stand.record(&pair).held_for_client == 0 {
        let before = stand.record(&pair).to_client_bytes;
        pair.broker.write_all(&bytes).unwrap();
        stand.until(&pair, |record| record.held_for_client > 0 || record.to_client_bytes == before + 65_536);
    }
    pair.broker.shutdown(Shutdown::Write).unwrap();
    stand.until(&pair, |record| record.half_closed == 2);
    // More than what is held: the kernel's part is looked at once a second.
    stand.until(&pair, |record| record.untaken_bytes > u64::from(record.held_for_client));
    read_all(&mut pair.client);
    stand.until(&pair, |record| record.untaken_bytes == 0);
}

#[test]
fn a_close_waits_no_longer_than_its_linger_and_then_resets() {
    let mut stand = Stand::new(1);
    let mut pair = stand.join();
    fill(&mut pair.broker, &noise(40_000_000));
    let began = Instant::now();
    stand.send(&pair, Command::Close(pair.id, 100));
    assert_eq!(cause(stand.expect(Kind::Ended, &pair)), Cause::ByPython as u64);
    assert!(began.elapsed() >= Duration::from_millis(99));
    assert!(is_reset(&mut pair.client));
}

#[test]
fn an_abort_resets_only_a_socket_with_much_unsent() {
    let mut stand = Stand::new(1);
    let mut pair = stand.join();
    fill(&mut pair.broker, &noise(40_000_000));
    stand.send(&pair, Command::Abort(pair.id));
    assert_eq!(cause(stand.expect(Kind::Ended, &pair)), Cause::ByPython as u64);
    assert!(is_reset(&mut pair.client));
    let mut quiet = stand.join();
    stand.send(&quiet, Command::Abort(quiet.id));
    assert_eq!(read_all(&mut quiet.client), b"");
    assert_eq!(read_all(&mut quiet.broker), b"");
    assert_eq!(cause(stand.expect(Kind::Ended, &quiet)), Cause::ByPython as u64);
}

#[test]
fn a_stop_ends_busy_pairs_and_tells_of_each() {
    let mut stand = Stand::new(2);
    let pairs: Vec<Joined> = (0..20).map(|_| stand.join()).collect();
    thread::scope(|scope| {
        for pair in &pairs {
            let mut client = pair.client.try_clone().unwrap();
            let mut broker = pair.broker.try_clone().unwrap();
            scope.spawn(move || while client.write_all(&[1; 50_000]).is_ok() {});
            scope.spawn(move || while std::io::copy(&mut broker, &mut std::io::sink()).is_ok_and(|count| count > 0) {});
        }
        thread::sleep(Duration::from_millis(50));
        stand.engine.stop();
        stand.engine.stop();
    });
    let mut ended: Vec<u64> = pairs.iter().map(|_| stand.next()).map(|event| event.pair).collect();
    ended.sort_unstable();
    let mut all: Vec<u64> = pairs.iter().map(|pair| pair.id).collect();
    all.sort_unstable();
    assert_eq!(ended, all);
    assert!(stand.next_within(0).is_none());
}

#[test]
fn a_stopped_engine_takes_no_pair_and_leaves_the_sockets_alone() {
    let stand = Stand::new(1);
    stand.engine.stop();
    let ((near, far), (other, _)) = (tcp(), tcp());
    let fds = [near.as_raw_fd(), other.as_raw_fd()];
    assert!(matches!(stand.engine.join(fds, [vec![], vec![]], false, false, [0, 0]), Err(Refused::Stopped)));
    (&near).write_all(b"mine").unwrap();
    assert_eq!(read(&mut { far }, 4), b"mine");
}

#[test]
fn a_socket_that_cannot_be_watched_is_refused_and_left_alone() {
    let mut stand = Stand::new(1);
    let (near, far) = tcp();
    let fds = [near.as_raw_fd(), -1];
    assert!(matches!(stand.engine.join(fds, [vec![], vec![]], false, false, [0, 0]), Err(Refused::Failed(_))));
    (&near).write_all(b"mine").unwrap();
    assert_eq!(read(&mut { far }, 4), b"mine");
    // It was unwatched, too: it can join with another.
    let other = tcp();
    let joined = [near.into_raw_fd(), other.0.into_raw_fd()];
    let id = stand.engine.join(joined, [vec![], vec![]], false, false, [0, 0]).unwrap();
    stand.engine.send(id, Command::Abort(id));
    assert_eq!(stand.next().pair, id);
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
fn commands_for_a_pair_that_ended_are_ignored() {
    let mut stand = Stand::new(1);
    let pair = stand.join();
    stand.send(&pair, Command::Abort(pair.id));
    stand.send(&pair, Command::Abort(pair.id));
    stand.expect(Kind::Ended, &pair);
    for command in [Command::Abort(pair.id), Command::Close(pair.id, 0), Command::Pass(pair.id, 1)] {
        stand.send(&pair, command);
    }
    stand.engine.pause(pair.id, 0, PAUSED);
    stand.engine.resume(pair.id, 0, PAUSED);
    assert!(stand.next_within(30).is_none());
    assert_ne!(stand.join().id, pair.id);
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

#[test]
fn a_write_that_stalls_for_too_long_ends_the_pair() {
    let mut stand = Stand::new(1);
    let (near, far) = tcp();
    crate::relay::sys::set_user_timeout(&near, 300);
    let mut pair = stand.join_sockets((near, far), tcp(), b"", b"", false);
    fill(&mut pair.broker, &noise(40_000_000));
    let values = stand.expect(Kind::Ended, &pair);
    assert_eq!((values[0], values[1]), (Cause::WriteStalled as u64, libc::ETIMEDOUT as u64));
    let _: TcpStream = pair.client;
}
