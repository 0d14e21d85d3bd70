//! Bytes pass, in order, whatever the receiver does.

use std::io::Write;
use std::thread;
use std::time::Duration;

use super::{fill, noise, read, tcp, Stand, BUFFER};

#[test]
fn both_directions_carry_the_first_bytes_first() {
    let stand = Stand::new(1);
    let mut pair = stand.join_with(b"to the client", b"to the broker", false);
    pair.client.write_all(b" and more").unwrap();
    assert_eq!(read(&mut pair.broker, 22), b"to the broker and more");
    pair.broker.write_all(b", too").unwrap();
    assert_eq!(read(&mut pair.client, 18), b"to the client, too");
    let record = stand.until(&pair, |record| record.client_reads == 1);
    // First bytes are no reads of the engine.
    assert_eq!((record.to_broker_bytes, record.to_client_bytes), (9, 5));
    assert_eq!((record.held_for_broker, record.held_for_client), (0, 0));
}

#[test]
fn sockets_that_are_not_tcp_are_relayed() {
    let stand = Stand::new(1);
    let mut pair = stand.join_unix(false);
    for _ in 0..100 {
        pair.client.write_all(&[7; 1_000]).unwrap();
        assert_eq!(read(&mut pair.broker, 1_000), [7; 1_000]);
        pair.broker.write_all(&[8; 1_000]).unwrap();
        assert_eq!(read(&mut pair.client, 1_000), [8; 1_000]);
    }
}

#[test]
fn a_socket_that_would_block_does_not_stop_the_thread() {
    let stand = Stand::new(1);
    let (client, broker) = (super::tcp(), super::tcp());
    client.0.set_nonblocking(false).unwrap();
    broker.0.set_nonblocking(false).unwrap();
    let mut blocking = stand.join_sockets(client, broker, b"", b"", false);
    let mut other = stand.join();
    other.client.write_all(b"x").unwrap();
    assert_eq!(read(&mut other.broker, 1), b"x");
    blocking.broker.write_all(b"y").unwrap();
    assert_eq!(read(&mut blocking.client, 1), b"y");
}

#[test]
fn a_pair_at_rest_is_a_few_hundred_bytes() {
    use crate::relay::{pair::Pair, stats::Stats, watch::Watch};
    let bytes = size_of::<Pair>() + size_of::<Watch>() + size_of::<Stats>();
    assert!(bytes <= 800, "{bytes}");
}

#[test]
fn much_is_carried_both_ways_at_once_by_many_pairs() {
    let stand = Stand::new(2);
    let bytes = &noise(3_000_000);
    thread::scope(|scope| {
        for _ in 0..8 {
            let pair = stand.join();
            for mut socket in [pair.client.try_clone().unwrap(), pair.broker.try_clone().unwrap()] {
                scope.spawn(move || socket.write_all(bytes).unwrap());
            }
            for mut socket in [pair.client, pair.broker] {
                scope.spawn(move || assert!(read(&mut socket, bytes.len()) == *bytes));
            }
        }
    });
}

#[test]
fn a_stopped_receiver_holds_one_read_at_most_and_loses_nothing() {
    let stand = Stand::new(1);
    let mut pair = stand.join();
    let bytes = noise(40_000_000);
    let sent = fill(&mut pair.broker, &bytes);
    assert!(sent < bytes.len());
    let held = stand.record(&pair).held_for_client as usize;
    assert!(held > 0 && held <= BUFFER, "{held}");
    // The other direction goes on.
    pair.client.write_all(b"ack").unwrap();
    assert_eq!(read(&mut pair.broker, 3), b"ack");
    assert!(read(&mut pair.client, sent) == bytes[..sent]);
    stand.until(&pair, |record| record.held_for_client == 0);
}

#[test]
fn a_paused_direction_is_not_read_until_every_reason_is_gone() {
    let stand = Stand::new(1);
    let mut pair = stand.join();
    pair.client.write_all(b"a").unwrap();
    assert_eq!(read(&mut pair.broker, 1), b"a");
    stand.engine.pause(pair.id, 0, 2);
    stand.engine.pause(pair.id, 0, 8);
    pair.client.write_all(b"b").unwrap();
    pair.broker.write_all(b"c").unwrap();
    assert_eq!(read(&mut pair.client, 1), b"c");
    stand.engine.resume(pair.id, 0, 2);
    thread::sleep(Duration::from_millis(30));
    assert_eq!(stand.record(&pair).to_broker_bytes, 1);
    assert_eq!(stand.record(&pair).pauses_to_broker, 8);
    stand.engine.resume(pair.id, 0, 8);
    assert_eq!(read(&mut pair.broker, 1), b"b");
}

#[test]
fn a_pair_that_joins_paused_reads_nothing_before_it_is_resumed() {
    let stand = Stand::new(1);
    let (client, broker) = (tcp(), tcp());
    (&client.1).write_all(b"early").unwrap();
    let mut pair = stand.join_paused(client, broker, (b"first", b"ahead"), false, [8 | 1, 0]);
    // The other direction tells that the thread has been round.
    pair.broker.write_all(b"other").unwrap();
    assert_eq!(read(&mut pair.client, 10), b"firstother");
    let record = stand.record(&pair);
    assert_eq!((record.to_broker_bytes, record.pauses_to_broker), (0, 8));
    assert_eq!(read(&mut pair.broker, 5), b"ahead");
    stand.engine.resume(pair.id, 0, 8);
    assert_eq!(read(&mut pair.broker, 5), b"early");
}

#[test]
fn pauses_and_resumes_at_any_moment_lose_no_byte_and_no_wakeup() {
    let stand = Stand::new(1);
    let mut pair = stand.join();
    let bytes = noise(5_000_000);
    thread::scope(|scope| {
        let (mut client, bytes) = (pair.client.try_clone().unwrap(), &bytes);
        scope.spawn(move || client.write_all(bytes).unwrap());
        let (engine, id) = (&stand.engine, pair.id);
        for reason in [2, 4] {
            scope.spawn(move || {
                for _ in 0..2_000 {
                    engine.pause(id, 0, reason);
                    thread::yield_now();
                    engine.resume(id, 0, reason);
                }
            });
        }
        assert!(read(&mut pair.broker, bytes.len()) == *bytes);
    });
}

#[test]
fn a_snapshot_has_one_record_for_each_pair() {
    let stand = Stand::new(2);
    let pairs: Vec<_> = (0..10).map(|_| stand.join()).collect();
    let snapshot = stand.engine.snapshot(0, usize::MAX);
    let size = crate::relay::stats::RECORD_BYTES;
    assert_eq!(snapshot.len(), pairs.len() * size);
    let mut ids: Vec<u64> =
        snapshot.chunks(size).map(|record| u64::from_le_bytes(record[..8].try_into().unwrap())).collect();
    ids.sort_unstable();
    let mut expected: Vec<u64> = pairs.iter().map(|pair| pair.id).collect();
    expected.sort_unstable();
    assert_eq!(ids, expected);
    // In slices, each behind the one before, it is the same.
    let mut sliced = stand.engine.snapshot(0, 3);
    while sliced.len() < snapshot.len() {
        let last = sliced[sliced.len() - size..][..8].try_into().unwrap();
        let slice = stand.engine.snapshot(u64::from_le_bytes(last), 3);
        assert!(!slice.is_empty() && slice.len() <= 3 * size);
        sliced.extend(slice);
    }
    let numbers = |records: &[u8]| records.chunks(size).map(|record| record[..8].to_vec()).collect::<Vec<_>>();
    assert_eq!(numbers(&sliced), numbers(&snapshot));
    assert!(stand.engine.beats().iter().all(|&ms| ms < 10_000));
}

#[test]
fn pairs_are_spread_over_the_threads() {
    let stand = Stand::new(2);
    let pairs: Vec<_> = (0..10).map(|_| stand.join()).collect();
    let on_first = pairs.iter().filter(|pair| stand.record(pair).thread == 0).count();
    assert_eq!(on_first, 5);
}

/// One pair that keeps its thread busy, as told by the burdens; `with` gets that thread's index.
fn beside_a_busy_thread(with: impl FnOnce(&Stand, u32)) {
    let stand = Stand::new(2);
    let busy = stand.join();
    let index = stand.record(&busy).thread;
    let (mut client, mut broker) = (busy.client.try_clone().unwrap(), busy.broker.try_clone().unwrap());
    let writer = thread::spawn(move || while client.write_all(&[1; 100_000]).is_ok() {});
    let reader = thread::spawn(move || std::io::copy(&mut broker, &mut std::io::sink()));
    // The load of a thread is told twice a second; the other one must rest, too, after its start.
    while stand.engine.burdens()[index as usize].0 == 0 || stand.engine.burdens()[1 - index as usize].0 > 0 {
        thread::sleep(Duration::from_millis(10));
    }
    with(&stand, index);
    stand.engine.stop();
    writer.join().unwrap();
    let _ = reader.join().unwrap();
}

#[test]
fn a_busy_thread_gets_no_more_pairs_while_another_rests() {
    beside_a_busy_thread(|stand, index| {
        let pairs: Vec<_> = (0..4).map(|_| stand.join()).collect();
        assert!(pairs.iter().all(|pair| stand.record(pair).thread != index));
    });
}

#[test]
fn a_crowd_that_comes_at_once_is_spread_although_one_thread_was_busier() {
    beside_a_busy_thread(|stand, index| {
        let pairs: Vec<_> = (0..100).map(|_| stand.join()).collect();
        assert!(pairs.iter().filter(|pair| stand.record(pair).thread == index).count() >= 20);
    });
}

#[test]
fn urgent_data_does_not_stop_what_follows() {
    // A read stops in front of an urgent byte; taken for "no more data" that would leave the rest lying.
    let stand = Stand::new(1);
    let mut pair = stand.join();
    stand.engine.pause(pair.id, 0, 2);
    pair.client.write_all(b"before").unwrap();
    crate::relay::sys::send_urgent(&pair.client, b'!');
    pair.client.write_all(b"after").unwrap();
    thread::sleep(Duration::from_millis(30));
    stand.engine.resume(pair.id, 0, 2);
    assert_eq!(read(&mut pair.broker, 11), b"beforeafter");
}
