//! How bytes and watch frames pass, beyond what whole proxies show (tests/integration/test_relay_contract.py).

use std::io::Write;
use std::thread;
use std::time::Duration;

use super::{frame, noise, read, read_all, tcp, Stand};
use crate::relay::queue::{Command, Kind};
use crate::relay::watch::{Teller, Watch};

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

#[test]
fn a_close_cuts_in_front_of_frames_that_wait() {
    let mut stand = Stand::new(1);
    let mut pair = stand.join_scanned();
    let before = frame(9, 40);
    pair.broker.write_all(&[before.clone(), frame(65, 100)].concat()).unwrap();
    stand.expect(Kind::Frames, &pair);
    stand.send(&pair, Command::Close(pair.id, 1_000));
    assert_eq!(read_all(&mut pair.client), before);
    assert_eq!(stand.expect(Kind::Ended, &pair)[4], 2);
}

#[test]
fn frames_wait_for_the_answer_whatever_else_is_resumed() {
    let mut stand = Stand::new(1);
    let mut pair = stand.join_scanned();
    pair.broker.write_all(&frame(65, 100)).unwrap();
    stand.expect(Kind::Frames, &pair);
    stand.engine.pause(pair.id, 1, 4);
    stand.engine.resume(pair.id, 1, 4 | 1);
    pair.broker.write_all(&noise(100)).unwrap();
    assert!(stand.next_within(30).is_none());
    assert_eq!(stand.record(&pair).held_for_client, 110);
}

#[test]
fn a_thousand_questions_a_second_are_asked_and_the_frames_behind_them_pass_and_are_told_of() {
    let (mut watch, mut events, update) = (Watch::new(), Vec::new(), frame(66, 3));
    let mut asks = |now, generation| {
        let mut teller = Teller { pair: 1, events: &mut events };
        let passing = watch.scan(&update, now, &mut teller).passing;
        assert_eq!((watch.settle(&mut teller), watch.answered(generation)), (passing == 0, passing == 0));
        passing == 0
    };
    assert!((1..=1_000).all(|generation| asks(5, generation)));
    assert!(!asks(5, 1_001) && !asks(999, 1_001) && asks(1_000, 1_001));
    let passed: Vec<_> = events.iter().filter(|event| event.kind == Kind::Passed).map(|event| event.values).collect();
    assert_eq!(passed, [[0, 0, 2, 2 * update.len() as u64, 0]]);
}
