//! Clients that are counted: a PRODUCER waits for its slot, SENDs are in the books of the slot, and no byte changes.

use std::io::Write;
use std::net::Shutdown;

use super::{is_reset, noise, read, read_all, reset, Joined, Random, Stand, PATIENCE_MS};
use crate::relay::producers::{Producer, ProducerScanner, Sink, Stop};
use crate::relay::queue::{Cause, Command, Kind};
use crate::relay::slots::OTHER;

const TOPIC: &[u8] = b"persistent://public/default/t";

/// Waits until a slot has no producer: the thread may hear of it behind the end of its pair.
fn comes_back(stand: &Stand, slot: u32) {
    for _ in 0..PATIENCE_MS {
        if stand.books.producers(slot) == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(stand.books.producers(slot), 0);
}

fn number(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 0x7F {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn frame(command: &[u8], payload: &[u8]) -> Vec<u8> {
    let size = command.len() as u32;
    let total = size + 4 + payload.len() as u32;
    [&total.to_be_bytes(), &size.to_be_bytes(), command, payload].concat()
}

fn command(kind: u8, tag: u8, part: &[u8]) -> Vec<u8> {
    [&[8, kind, tag], &number(part.len() as u64)[..], part].concat()
}

pub fn producer(id: u64, topic: &[u8]) -> Vec<u8> {
    let part = [&[0x0A], &number(topic.len() as u64)[..], topic, &[0x10], &number(id), &[0x18, 1]].concat();
    frame(&command(5, 0x2A, &part), b"")
}

pub fn send(id: u64, messages: u64, payload: usize) -> Vec<u8> {
    let part = [&[0x08], &number(id)[..], &[0x10, 0, 0x18], &number(messages)].concat();
    frame(&command(6, 0x32, &part), &noise(payload))
}

fn close(id: u64) -> Vec<u8> {
    frame(&command(15, 0x7A, &[&[0x08], &number(id)[..], &[0x10, 1]].concat()), b"")
}

fn subscribe() -> Vec<u8> {
    frame(&command(4, 0x22, &[0x0A, 1, b't', 0x12, 1, b's']), b"")
}

/// Joins a pair that is counted.
pub fn counted(stand: &mut Stand) -> Joined {
    stand.counts = true;
    stand.join()
}

/// Answers the next question, which must be about `topic`.
pub fn answer(stand: &mut Stand, pair: &Joined, topic: &[u8], slot: u32) {
    let [generation, ..] = stand.expect(Kind::Producer, pair);
    assert_eq!(stand.engine.take_topic(pair.id, generation).as_deref(), Some(topic));
    assert_eq!(stand.engine.take_topic(pair.id, generation), None);
    // An answer to another question is none.
    stand.engine.assign(pair.id, generation + 1, slot + 1);
    stand.engine.assign(pair.id, generation, slot);
}

/// Sends what is to be read on the other side, unchanged.
pub fn pass(pair: &mut Joined, bytes: &[u8]) {
    pair.client.write_all(bytes).unwrap();
    assert_eq!(read(&mut pair.broker, bytes.len()), bytes);
}

#[test]
fn a_pair_that_ends_while_its_producer_waits_gives_the_slot_back() {
    let mut stand = Stand::new(1);
    for way in 0..4 {
        let mut pair = counted(&mut stand);
        pair.client.write_all(&producer(1, TOPIC)).unwrap();
        let [generation, ..] = stand.expect(Kind::Producer, &pair);
        let (id, mut broker) = (pair.id, pair.broker);
        let cause = match way {
            0 => {
                reset(pair.client);
                // What was sent before still goes out.
                assert_eq!(read_all(&mut broker), producer(1, TOPIC));
                Cause::ClientReset
            }
            1 => {
                reset(broker);
                Cause::BrokerReset
            }
            2 => {
                stand.engine.send(id, Command::Close(id, 1_000));
                assert_eq!(read_all(&mut broker), b"");
                Cause::ByPython
            }
            _ => {
                stand.engine.send(id, Command::Abort(id));
                Cause::ByPython
            }
        };
        stand.engine.assign(id, generation, 9);
        let event = stand.next();
        assert_eq!((event.kind, event.values[0]), (Kind::Ended, cause as u64));
        stand.engine.assign(id, generation, 9);
        comes_back(&stand, 9);
    }
}

#[test]
fn a_panic_over_what_waits_behind_a_producer_ends_its_pair_only_and_gives_the_slot_back() {
    let mut stand = Stand::new(1);
    let mut pair = counted(&mut stand);
    pair.client.write_all(&[producer(1, TOPIC), send(1, 1, 10)].concat()).unwrap();
    let [generation, ..] = stand.expect(Kind::Producer, &pair);
    let (go_on, held) = std::sync::mpsc::channel();
    stand.engine.tell_thread(0, Command::Hold(held));
    stand.engine.tell_thread(0, Command::Panic(pair.id));
    stand.engine.assign(pair.id, generation, 7);
    drop(go_on);
    assert_eq!(stand.expect(Kind::Ended, &pair)[0], Cause::Internal as u64);
    comes_back(&stand, 7);
    // A FIN would say that the client had sent nothing.
    assert!(is_reset(&mut pair.broker));
    let mut other = counted(&mut stand);
    pass(&mut other, &send(1, 1, 10));
}

#[test]
fn a_fin_behind_a_producer_that_waits_passes_behind_it() {
    let mut stand = Stand::new(1);
    let mut pair = counted(&mut stand);
    pair.client.write_all(&producer(1, TOPIC)).unwrap();
    pair.client.shutdown(Shutdown::Write).unwrap();
    let [generation, ..] = stand.expect(Kind::Producer, &pair);
    stand.engine.assign(pair.id, generation, 1);
    assert_eq!(read_all(&mut pair.broker), producer(1, TOPIC));
    drop(pair.broker);
    assert_eq!(stand.next().values[0], Cause::ClientClosed as u64);
}

#[test]
fn a_payload_that_is_spliced_is_counted_once() {
    let mut stand = Stand::new(1);
    let mut pair = counted(&mut stand);
    let first = producer(1, TOPIC);
    pair.client.write_all(&first).unwrap();
    answer(&mut stand, &pair, TOPIC, 1);
    read(&mut pair.broker, first.len());
    let large = send(1, 1, 5_000_000);
    let stream = large.repeat(8);
    let mut client = pair.client.try_clone().unwrap();
    let sent = stream.clone();
    let writer = std::thread::spawn(move || client.write_all(&sent).unwrap());
    assert!(read(&mut pair.broker, stream.len()) == stream);
    writer.join().unwrap();
    assert!(stand.record(&pair).spliced_bytes > 20_000_000);
    assert_eq!(stand.books.take(1), (stream.len() as u64, 8, false, 1));
}

#[test]
fn more_than_a_thousand_producers_a_second_are_not_asked_for() {
    let mut stand = Stand::new(1);
    let mut pair = counted(&mut stand);
    let stream: Vec<u8> = (0..1_100).flat_map(|_| producer(1, b"t")).collect();
    let mut client = pair.client.try_clone().unwrap();
    let sent = stream.clone();
    let writer = std::thread::spawn(move || client.write_all(&sent).unwrap());
    let mut asked = 0;
    while let Some(event) = stand.next_within(500) {
        assert_eq!(event.kind, Kind::Producer);
        stand.engine.assign(pair.id, event.values[0], 1);
        asked += 1;
    }
    assert_eq!(read(&mut pair.broker, stream.len()), stream);
    writer.join().unwrap();
    // A busy machine may take more than a second for the first thousand.
    assert!(asked >= 1_000);
    assert_eq!(stand.books.counts().1, 1_100 - asked);
}

#[test]
fn a_connection_has_a_thousand_slots_and_the_rest_is_other() {
    let mut stand = Stand::new(1);
    let mut pair = counted(&mut stand);
    for id in 0..1_030u64 {
        // More than a thousand questions a second are not asked: the clock must go on.
        if id == 900 {
            std::thread::sleep(std::time::Duration::from_millis(1_100));
        }
        pair.client.write_all(&producer(id, b"t")).unwrap();
        if id < 1_024 {
            answer(&mut stand, &pair, b"t", 1);
        }
        read(&mut pair.broker, producer(id, b"t").len());
    }
    assert_eq!(stand.books.producers(1), 1_024);
    pass(&mut pair, &[send(1_023, 1, 5), send(1_029, 1, 5)].concat());
    assert_eq!((stand.books.take(1).1, stand.books.take(OTHER).1), (1, 1));
}

type Told = (Option<u64>, u64, u64);

#[derive(Default)]
struct Model {
    found: Vec<Told>,
}

impl Sink for Model {
    fn send(&mut self, producer: Option<u64>, messages: u64, frame_bytes: u64) {
        self.found.push((producer, messages, frame_bytes));
    }

    fn closed(&mut self, producer: u64) {
        self.found.push((Some(producer), 0, 0));
    }

    fn subscribed(&mut self) {
        self.found.push((None, 0, 0));
    }

    fn ended(&mut self) {
        self.found.push((None, 9, 9));
    }
}

fn scan(stream: &[u8], random: &mut Random, largest: usize) -> (Vec<Told>, Vec<(Producer, usize)>) {
    let (mut scanner, mut model, mut stops, mut at) = (ProducerScanner::new(), Model::default(), Vec::new(), 0);
    while at < stream.len() {
        let end = (at + 1 + random.below(largest)).min(stream.len());
        while let Some(Stop { producer, start, resume }) = scanner.scan(&stream[at..end], &mut model) {
            assert!(start <= resume && resume <= end - at);
            at += resume;
            stops.push((producer, model.found.len()));
        }
        at = end;
    }
    (model.found, stops)
}

#[test]
fn the_reads_change_nothing_in_random_streams() {
    let mut random = Random(17);
    for round in 0..if cfg!(miri) { 20 } else { 5_000 } {
        let mut stream = Vec::new();
        for _ in 0..random.below(10) {
            let id = random.next() >> random.below(64);
            let next = match random.below(5) {
                0 => producer(id, &noise(random.below(700))),
                1 => close(id),
                2 => subscribe(),
                3 => frame(&noise(random.below(30) + 2), b"payload"),
                _ => send(id, random.next() >> random.below(64), random.below(100)),
            };
            stream.extend(next);
        }
        if !stream.is_empty() && random.below(4) == 0 {
            let at = random.below(stream.len());
            stream[at] ^= 1 << random.below(8);
        }
        let whole = scan(&stream, &mut random, 1_000_000);
        assert_eq!(scan(&stream, &mut random, 9), whole, "round {round}: {stream:?}");
        assert_eq!(scan(&stream, &mut random, 200), whole, "round {round}: {stream:?}");
    }
}
