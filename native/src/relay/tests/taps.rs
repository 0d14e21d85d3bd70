//! Commands for the log: each is told once, no payload is, and what waits for Python is bounded.

use std::io::Write;
use std::net::Shutdown;
use std::sync::Arc;
use std::thread;

use super::{frame, read, read_all, reset, Joined, Random, Stand, BUFFER};
use crate::relay::queue::{Command, Kind};
use crate::relay::tap::{CommandScanner, Tapped};

/// Makes a frame with headers of a message, which are told, and a payload, which is not.
fn message(headers: &[u8], payload: &[u8]) -> Vec<u8> {
    let total = (4 + 2 + headers.len() + payload.len()) as u32;
    [&total.to_be_bytes(), &[0, 0, 0, 2, 8, 9][..], headers, payload].concat()
}

fn metadata(size: u8) -> Vec<u8> {
    [&[0, 0, 0, size][..], &vec![7; size.into()]].concat()
}

fn scanned(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, bool) {
    let (mut scanner, mut found) = (CommandScanner::default(), Vec::new());
    pieces.iter().for_each(|piece| scanner.scan(piece, |head| found.push(head.to_vec())));
    (found, scanner.ended())
}

fn tapped_stand() -> (Stand, Arc<Tapped>) {
    let mut stand = Stand::with_buffer(1, 256 * 1024);
    let tapped = Arc::<Tapped>::default();
    stand.tapped = Some(Arc::clone(&tapped));
    (stand, tapped)
}

/// Takes commands until the pair has ended, a few at a time.
fn all_told(stand: &mut Stand, pair: &Joined, tapped: &Tapped) -> Vec<(usize, Vec<u8>)> {
    let (mut told, mut ended) = (Vec::new(), false);
    loop {
        let taken = tapped.take(3);
        if !taken.is_empty() {
            told.extend(taken);
        } else if ended {
            return told;
        } else {
            let event = stand.next();
            assert_eq!(event.pair, pair.id);
            ended = event.kind == Kind::Ended;
        }
    }
}

#[test]
fn however_a_stream_is_cut_each_head_is_found_once() {
    let mut random = Random(11);
    for _ in 0..if cfg!(miri) { 3 } else { 300 } {
        let frames: Vec<Vec<u8>> =
            (0..random.below(9)).map(|_| frame(6, [0, 1, 90, 4_086, 4_087, 70_000][random.below(6)])).collect();
        let stream = frames.concat();
        let (mut pieces, mut rest) = (Vec::new(), stream.as_slice());
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.len().min(1 + random.below(9_000)));
            pieces.push(piece);
            rest = behind;
        }
        let heads = frames.iter().map(|frame| frame[..frame.len().min(4_096)].to_vec()).collect();
        assert_eq!(scanned(&pieces), (heads, false));
    }
}

#[test]
fn headers_of_a_message_are_told_and_no_byte_of_its_payload() {
    let entry = [&[0x0e, 2, 0, 0, 0, 3, 1, 2, 3][..], &[0x0e, 1, 9, 9, 9, 9], &metadata(40)].concat();
    for headers in [metadata(5), metadata(0), [&[0x0e, 1, 9, 9, 9, 9][..], &metadata(5)].concat(), entry] {
        let whole = message(&headers, b"secret");
        assert_eq!(scanned(&[&whole]).0, [&whole[..whole.len() - 6]]);
    }
    for nonsense in [&[0, 0, 9, 9, 1][..], &[0x0e, 2, 255, 255, 255, 255, 0, 0], &[0x0e], &[0x0e, 1, 0, 0, 0, 0, 0, 0]]
    {
        assert_eq!(scanned(&[&message(nonsense, b"")]).0, [&message(nonsense, b"")[..10]]);
    }
}

#[test]
fn sizes_that_make_no_sense_end_the_scan_for_good() {
    for sizes in [[255; 8], [0; 8], [0, 0, 0, 5, 0, 0, 0, 3], [0, 0, 0, 5, 0, 0, 0, 1]] {
        assert_eq!(scanned(&[&frame(6, 0), &sizes, &frame(6, 0)]), (vec![frame(6, 0)], true));
    }
}

#[test]
fn every_command_of_both_sides_is_told_also_those_that_came_with_the_handshake() {
    let (mut stand, tapped) = tapped_stand();
    // More than there is room for.
    let first = frame(6, 20).repeat(3_000);
    let mut pair = stand.join_with(&first, &first, true);
    pair.client.write_all(&frame(18, 3)).unwrap();
    pair.broker.write_all(&frame(19, 4)).unwrap();
    assert_eq!(read(&mut pair.broker, first.len()), first);
    assert_eq!(read(&mut pair.client, first.len()), first);
    pair.client.shutdown(Shutdown::Write).unwrap();
    pair.broker.shutdown(Shutdown::Write).unwrap();
    let told = all_told(&mut stand, &pair, &tapped);
    for (number, last) in [frame(18, 3), frame(19, 4)].into_iter().enumerate() {
        let heads: Vec<_> = told.iter().filter(|(direction, _)| *direction == number).map(|(_, head)| head).collect();
        assert_eq!((heads.len(), heads.last().unwrap().as_slice()), (3_001, last.as_slice()));
    }
}

#[test]
fn commands_between_spliced_payloads_are_told() {
    let (mut stand, tapped) = tapped_stand();
    let pair = stand.join();
    let stream = [message(&metadata(5), &vec![1; 2_000_000]), frame(6, 1)].concat().repeat(20);
    let told = thread::scope(|scope| {
        let (mut client, stream) = (pair.client.try_clone().unwrap(), &stream);
        scope.spawn(move || {
            client.write_all(stream).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        });
        let mut broker = pair.broker.try_clone().unwrap();
        scope.spawn(move || {
            assert!(read(&mut broker, stream.len()) == *stream);
            broker.shutdown(Shutdown::Both).unwrap();
        });
        let mut spliced = 0;
        let mut told = Vec::new();
        while told.len() < 40 {
            let event = stand.next();
            assert_eq!(event.kind, Kind::Commands);
            spliced = stand.record(&pair).spliced_bytes;
            told.extend(tapped.take(1_000));
        }
        assert!(spliced > 0);
        told
    });
    let (large, small) = (&message(&metadata(5), b"")[10..], frame(6, 1));
    for heads in told.chunks(2) {
        assert_eq!((&heads[0].1[10..], &heads[1].1), (large, &small));
    }
    assert_eq!(stand.next().kind, Kind::Ended);
}

#[test]
fn while_nobody_takes_commands_little_waits_and_one_event_says_so() {
    let (mut stand, tapped) = tapped_stand();
    let mut pair = stand.join();
    let stream = frame(6, 0).repeat(BUFFER);
    pair.client.set_nonblocking(true).unwrap();
    let sent = pair.client.write(&stream).unwrap();
    assert!(sent > 16 * 1024);
    stand.expect(Kind::Commands, &pair);
    assert!(stand.next_within(100).is_none());
    assert!(stand.record(&pair).to_broker_bytes < 8 * 1024);
    let whole = thread::scope(|scope| {
        let mut broker = pair.broker.try_clone().unwrap();
        let reader = scope.spawn(move || read(&mut broker, sent));
        while !reader.is_finished() {
            tapped.take(1_000);
            thread::yield_now();
        }
        reader.join().unwrap()
    });
    assert!(whole == stream[..sent]);
}

#[test]
fn the_last_words_of_a_side_that_failed_wait_for_nobody() {
    let (mut stand, tapped) = tapped_stand();
    let Joined { id, mut client, mut broker } = stand.join();
    let stream = frame(6, 0).repeat(3_000);
    client.write_all(&stream).unwrap();
    assert_eq!(stand.next().kind, Kind::Commands);
    reset(client);
    assert!(read_all(&mut broker) == stream);
    assert_eq!((stand.next().kind, stand.engine.snapshot_of(id)), (Kind::Ended, None));
    assert!((500..3_000).contains(&tapped.take(3_000).len()));
}

#[test]
fn a_tap_that_is_closed_holds_nobody_up() {
    let (mut stand, tapped) = tapped_stand();
    let mut pair = stand.join();
    let stream = frame(6, 0).repeat(10_000);
    pair.client.write_all(&stream).unwrap();
    stand.expect(Kind::Commands, &pair);
    tapped.close();
    assert!(read(&mut pair.broker, stream.len()) == stream);
    assert!(tapped.take(1).is_empty());
    stand.send(&pair, Command::Abort(pair.id));
    stand.expect(Kind::Ended, &pair);
}
