//! Frames of interest: stopped, asked for, answered, told of.

use std::io::Write;
use std::net::Shutdown;

use super::{fill, frame, noise, read, read_all, reset, Joined, Stand};
use crate::relay::queue::{Cause, Command, Kind};

const SUCCESS: u8 = 65;
const UPDATE: u8 = 66;
const MESSAGE: u8 = 9;

fn pass(stand: &Stand, pair: &Joined, generation: u64) {
    stand.send(pair, Command::Pass(pair.id, generation));
}

#[test]
fn a_watch_frame_waits_and_the_bytes_before_it_do_not() {
    let mut stand = Stand::new(1);
    let mut pair = stand.join_scanned();
    let (before, watched) = (frame(MESSAGE, 50), frame(SUCCESS, 100));
    pair.broker.write_all(&[before.clone(), watched.clone(), frame(UPDATE, 30)[..20].to_vec()].concat()).unwrap();
    let [generation, successes, updates, frame_bytes, open_bytes] = stand.expect(Kind::Frames, &pair);
    assert_eq!((successes, updates, frame_bytes, open_bytes), (1, 1, 150, 20));
    assert_eq!(read(&mut pair.client, before.len()), before);
    let record = stand.until(&pair, |record| record.held_for_client == 130);
    assert_eq!(record.pauses_to_client, 1);
    pass(&stand, &pair, generation + 1);
    pass(&stand, &pair, generation - 1);
    assert!(stand.next_within(30).is_none());
    pass(&stand, &pair, generation);
    assert_eq!(stand.expect(Kind::Drained, &pair)[0], generation);
    assert_eq!(read(&mut pair.client, watched.len()), watched);
    read(&mut pair.client, 20);
    pair.broker.write_all(&frame(UPDATE, 30)[20..]).unwrap();
    read(&mut pair.client, 20);
    assert_eq!(stand.record(&pair).asks, 1);
    assert_eq!(stand.record(&pair).pauses_to_client, 0);
}

#[test]
fn what_came_with_the_handshake_is_scanned() {
    let mut stand = Stand::new(1);
    let connected = frame(3, 10);
    let first = [connected.clone(), frame(SUCCESS, 5)].concat();
    let mut pair = stand.join_with(&first, b"", true);
    let generation = stand.expect(Kind::Frames, &pair)[0];
    assert_eq!(read(&mut pair.client, connected.len()), connected);
    pass(&stand, &pair, generation);
    stand.expect(Kind::Drained, &pair);
    assert_eq!(read(&mut pair.client, 15), frame(SUCCESS, 5));
}

#[test]
fn a_watch_frame_in_segments_of_one_byte_is_found() {
    let mut stand = Stand::new(1);
    let mut pair = stand.join_scanned();
    pair.broker.set_nodelay(true).unwrap();
    let watched = frame(UPDATE, 3);
    for byte in &watched[..10] {
        pair.broker.write_all(&[*byte]).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let values = stand.expect(Kind::Frames, &pair);
    assert_eq!(values[1..], [0, 1, 13, 3]);
    pass(&stand, &pair, values[0]);
    stand.expect(Kind::Drained, &pair);
    pair.broker.write_all(&watched[10..]).unwrap();
    assert_eq!(read(&mut pair.client, 13), watched);
}

#[test]
fn drained_is_told_when_a_slow_client_has_taken_the_bytes() {
    let mut stand = Stand::new(1);
    let mut pair = stand.join_scanned();
    // Fills both kernels' buffers with other frames first: the watch frame is held behind them.
    let other = frame(MESSAGE, 1_000_000);
    let mut sent = 0;
    while stand.record(&pair).held_for_client == 0 {
        sent += fill(&mut pair.broker, &other[sent % other.len()..]);
    }
    pair.broker.set_nonblocking(true).unwrap();
    let rest = other[sent % other.len()..].to_vec();
    let watched = frame(SUCCESS, 200_000);
    let mut broker = pair.broker.try_clone().unwrap();
    broker.set_nonblocking(false).unwrap();
    let mut tail = [rest.clone(), watched.clone()].concat();
    if rest.len() == other.len() {
        tail.drain(..rest.len());
    }
    let expected = tail.len();
    let writer = std::thread::spawn(move || broker.write_all(&tail).unwrap());
    assert!(stand.next_within(50).is_none());
    read(&mut pair.client, sent + expected - watched.len());
    let generation = stand.expect(Kind::Frames, &pair)[0];
    pass(&stand, &pair, generation);
    assert_eq!(stand.expect(Kind::Drained, &pair)[0], generation);
    assert!(read(&mut pair.client, watched.len()) == watched);
    writer.join().unwrap();
}

#[test]
fn bytes_inside_a_watch_frame_that_the_client_leaves_lying_are_told_once() {
    let mut stand = Stand::new(1);
    let mut pair = stand.join_scanned();
    let watched = frame(SUCCESS, 30_000_000);
    pair.broker.write_all(&watched[..100]).unwrap();
    let values = stand.expect(Kind::Frames, &pair);
    assert_eq!(values[4], watched.len() as u64 - 100);
    pass(&stand, &pair, values[0]);
    stand.expect(Kind::Drained, &pair);
    let sent = fill(&mut pair.broker, &watched[100..]);
    assert!(sent + 100 < watched.len());
    let [generation, inside, ..] = stand.expect(Kind::Inside, &pair);
    assert!(generation > values[0] && inside > 0);
    assert!(stand.next_within(50).is_none());
    read(&mut pair.client, sent + 100);
    assert_eq!(stand.expect(Kind::Drained, &pair)[0], generation);
}

#[test]
fn sizes_that_make_no_sense_end_the_scan_and_all_bytes_pass() {
    let mut stand = Stand::new(1);
    let mut pair = stand.join_scanned();
    pair.broker.write_all(&[255; 100]).unwrap();
    stand.expect(Kind::Unwalkable, &pair);
    assert_eq!(read(&mut pair.client, 100), [255; 100]);
    pair.broker.write_all(&frame(SUCCESS, 1)).unwrap();
    assert_eq!(read(&mut pair.client, 11), frame(SUCCESS, 1));
    assert!(stand.next_within(20).is_none());
}

#[test]
fn more_than_a_thousand_questions_a_second_are_not_asked() {
    let mut stand = Stand::new(1);
    let mut pair = stand.join_scanned();
    pair.broker.set_nodelay(true).unwrap();
    let (mut asked, mut frames) = (0, 0);
    let mut passed = None;
    while passed.is_none() {
        pair.broker.write_all(&frame(UPDATE, 3)).unwrap();
        frames += 1;
        while let Some(event) = stand.next_within(i32::from(frames % 50 != 0 || asked >= 1_000)) {
            match event.kind {
                Kind::Frames => {
                    asked += event.values[2];
                    pass(&stand, &pair, event.values[0]);
                }
                Kind::Passed => passed = Some(event.values),
                kind => assert_eq!(kind, Kind::Drained),
            }
            if event.kind == Kind::Drained {
                break;
            }
        }
    }
    let [_, successes, updates, frame_bytes, _] = passed.unwrap();
    assert!(asked >= 1_000 && updates > 0);
    assert_eq!((successes, frame_bytes), (0, 13 * updates));
    assert_eq!(read(&mut pair.client, 13 * frames), frame(UPDATE, 3).repeat(frames));
}

#[test]
fn frames_that_wait_when_the_broker_resets_pass_without_an_answer() {
    let mut stand = Stand::new(1);
    let mut pair = stand.join_scanned();
    pair.broker.write_all(&frame(SUCCESS, 100)).unwrap();
    let generation = stand.expect(Kind::Frames, &pair)[0];
    reset(pair.broker);
    assert_eq!(read_all(&mut pair.client), frame(SUCCESS, 100));
    let event = stand.next();
    assert_eq!((event.values[0], event.values[4]), (Cause::BrokerReset as u64, 1));
    stand.engine.send(event.pair, Command::Pass(event.pair, generation));
    assert!(stand.next_within(20).is_none());
}

#[test]
fn frames_that_wait_when_the_client_resets_are_dropped() {
    let mut stand = Stand::new(1);
    let mut pair = stand.join_scanned();
    pair.broker.write_all(&frame(SUCCESS, 100)).unwrap();
    stand.expect(Kind::Frames, &pair);
    reset(pair.client);
    let event = stand.next();
    assert_eq!((event.kind, event.values[0], event.values[4]), (Kind::Ended, Cause::ClientReset as u64, 2));
}

#[test]
fn a_close_cuts_in_front_of_frames_that_wait() {
    let mut stand = Stand::new(1);
    let mut pair = stand.join_scanned();
    let before = frame(MESSAGE, 40);
    pair.broker.write_all(&[before.clone(), frame(SUCCESS, 100)].concat()).unwrap();
    stand.expect(Kind::Frames, &pair);
    stand.send(&pair, Command::Close(pair.id, 1_000));
    assert_eq!(read_all(&mut pair.client), before);
    assert_eq!(stand.expect(Kind::Ended, &pair)[4], 2);
}

#[test]
fn a_fin_behind_frames_that_wait_passes_behind_them() {
    let mut stand = Stand::new(1);
    let mut pair = stand.join_scanned();
    pair.broker.write_all(&frame(SUCCESS, 100)).unwrap();
    pair.broker.shutdown(Shutdown::Write).unwrap();
    let generation = stand.expect(Kind::Frames, &pair)[0];
    assert!(stand.next_within(20).is_none());
    pass(&stand, &pair, generation);
    assert_eq!(read_all(&mut pair.client), frame(SUCCESS, 100));
    stand.expect(Kind::Drained, &pair);
    drop(pair.client);
    assert_eq!(stand.next().values[0], Cause::BrokerClosed as u64);
}

#[test]
fn frames_wait_for_the_answer_whatever_else_is_resumed() {
    let mut stand = Stand::new(1);
    let mut pair = stand.join_scanned();
    pair.broker.write_all(&frame(SUCCESS, 100)).unwrap();
    stand.expect(Kind::Frames, &pair);
    stand.engine.pause(pair.id, 1, 4);
    stand.engine.resume(pair.id, 1, 4 | 1);
    pair.broker.write_all(&noise(100)).unwrap();
    assert!(stand.next_within(30).is_none());
    assert_eq!(stand.record(&pair).held_for_client, 110);
}
