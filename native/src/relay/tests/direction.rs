//! The rules of a direction, without sockets.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};

use super::{frame, noise, Random};
use crate::relay::direction::{Direction, Ends, Step, Turn};
use crate::relay::pipes::{Pipe, PipePool};
use crate::relay::queue::{Event, Kind};
use crate::relay::stats::Stats;

const BUFFER: usize = 4_096;

/// A source with bytes that come in pieces, and a sink that takes as much as it is told to.
#[derive(Default)]
pub struct Script {
    source: VecDeque<u8>,
    fin: bool,
    room: usize,
    sunk: Vec<u8>,
    finished: bool,
    calls: usize,
}

fn blocked<T>() -> io::Result<T> {
    Err(ErrorKind::WouldBlock.into())
}

impl Ends for Script {
    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.calls += 1;
        let count = into.len().min(self.source.len());
        if count == 0 && !self.fin {
            return blocked();
        }
        for (to, from) in into.iter_mut().zip(self.source.drain(..count)) {
            *to = from;
        }
        Ok(count)
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.calls += 1;
        let count = bytes.len().min(self.room);
        self.room -= count;
        self.sunk.extend_from_slice(&bytes[..count]);
        if count == 0 {
            return blocked();
        }
        Ok(count)
    }

    fn fill(&mut self, _: &mut Pipe, _: usize) -> io::Result<usize> {
        unreachable!("the buffer is too small for a pipe")
    }

    fn empty(&mut self, _: &mut Pipe) -> io::Result<usize> {
        unreachable!("the buffer is too small for a pipe")
    }

    fn room(&mut self, _: usize) -> usize {
        self.room
    }

    fn finish(&mut self) {
        self.finished = true;
    }
}

/// A direction with all that its thread would lend.
struct Bench {
    direction: Direction,
    script: Script,
    stats: Stats,
    buffer: Vec<u8>,
    pipes: PipePool,
    events: Vec<Event>,
    now: u64,
}

impl Bench {
    fn new(scan: bool) -> Self {
        Bench {
            direction: Direction::new(1, scan, None, None),
            script: Script { room: usize::MAX, ..Script::default() },
            stats: Stats::new(5, 0, 0),
            buffer: vec![0; BUFFER],
            pipes: PipePool::new(BUFFER),
            events: Vec::new(),
            now: 0,
        }
    }

    fn turn(&mut self) -> Step {
        let Bench { direction, script, stats, buffer, pipes, events, now } = self;
        let mut turn = Turn { buffer, pipes, pool: &mut None, events, now: *now };
        let step = direction.turn(script, stats, &mut turn);
        let held = stats.lanes[1].held();
        assert_eq!(held, direction.held_bytes() as u64, "what Python is told");
        step
    }

    /// Does what epoll does: says that there may be more.
    fn wake(&mut self) {
        self.direction.readable = true;
        self.direction.writable = true;
    }
}

#[test]
fn a_small_message_costs_one_read_and_one_write() {
    let mut bench = Bench::new(true);
    for _ in 0..3 {
        bench.script.source.extend(frame(7, 500));
        bench.wake();
        bench.script.calls = 0;
        assert_eq!(bench.turn(), Step::Rest);
        assert_eq!(bench.script.calls, 2);
    }
    assert_eq!(bench.script.sunk, frame(7, 500).repeat(3));
}

#[test]
fn a_direction_that_has_more_to_do_ends_its_turn_after_its_share() {
    let mut bench = Bench::new(false);
    bench.script.source.extend(noise(10 * BUFFER));
    assert_eq!(bench.turn(), Step::Again);
    assert_eq!(bench.script.sunk.len(), 8 * BUFFER);
    assert_eq!(bench.turn(), Step::Rest);
    assert_eq!(bench.script.sunk, noise(10 * BUFFER));
}

#[test]
fn nothing_is_read_while_anything_is_held() {
    let mut bench = Bench::new(false);
    bench.script.source.extend(noise(3 * BUFFER));
    bench.script.room = 100;
    assert_eq!(bench.turn(), Step::Rest);
    assert_eq!(bench.direction.held_bytes(), BUFFER - 100);
    assert_eq!(bench.script.calls, 2, "after a short write the sink is not tried again");
    bench.direction.readable = true;
    assert_eq!(bench.turn(), Step::Rest);
    assert_eq!(bench.script.source.len(), 2 * BUFFER);
}

#[test]
fn a_receiver_that_takes_a_part_of_what_is_held_frees_none_of_its_memory() {
    let mut bench = Bench::new(false);
    bench.script.source.extend(noise(BUFFER));
    bench.script.room = 100;
    bench.turn();
    for left in [1_000, 1] {
        bench.script.room = bench.direction.held_bytes() - left;
        bench.direction.writable = true;
        bench.turn();
        assert_eq!((bench.stats.lanes[1].held(), bench.stats.lanes[1].kept()), (left as u64, BUFFER as u64 - 100));
    }
    bench.script.room = 1;
    bench.direction.writable = true;
    bench.turn();
    assert_eq!(bench.stats.lanes[1].kept(), 0);
}

#[test]
fn an_end_is_read_behind_a_short_read_if_epoll_has_announced_it() {
    let mut bench = Bench::new(false);
    bench.script.source.extend(b"last");
    bench.script.fin = true;
    bench.direction.thorough = true;
    assert_eq!(bench.turn(), Step::Rest);
    assert!(bench.script.finished && bench.direction.finished());
}

#[test]
fn random_streams_pass_whole_in_order_and_one_read_is_held_at_most() {
    let mut random = Random(16);
    for round in 0..if cfg!(miri) { 1 } else { 3_000 } {
        let mut bench = Bench::new(round % 4 != 0);
        bench.script.room = 0;
        let stream: Vec<u8> =
            (0..random.below(20)).flat_map(|_| frame([7, 65, 66, 77][random.below(4)], random.below(3_000))).collect();
        let (mut given, mut steps) = (0, 0);
        while bench.script.sunk.len() < stream.len() {
            steps += 1;
            assert!(steps < 100_000, "round {round} hangs");
            bench.now += random.below(3) as u64;
            match random.below(4) {
                0 => {
                    let next = (given + random.below(2 * BUFFER)).min(stream.len());
                    bench.script.source.extend(&stream[given..next]);
                    given = next;
                    bench.direction.readable = true;
                }
                1 => {
                    bench.script.room += random.below(2 * BUFFER);
                    bench.direction.writable = true;
                }
                2 => answer(&mut bench),
                _ => while bench.turn() == Step::Again {},
            }
            assert!(bench.direction.held_bytes() <= BUFFER);
        }
        answer(&mut bench);
        assert_eq!(bench.script.sunk, stream, "round {round}");
        assert!(bench.script.source.is_empty());
    }
}

/// Answers the question that is open, and checks the order of events: no DRAINED without a reason, one for each.
fn answer(bench: &mut Bench) {
    let mut owed = 0;
    let mut open = None;
    for event in &bench.events {
        match event.kind {
            Kind::Frames => {
                assert_eq!(owed, 0);
                open = Some(event.values[0]);
            }
            Kind::Inside => {
                assert_eq!(owed, 0);
                owed = event.values[0];
            }
            Kind::Drained => assert!(owed == 0 || owed == event.values[0]),
            kind => assert_ne!(kind, Kind::Ended),
        }
        if event.kind == Kind::Drained {
            owed = 0;
        }
    }
    if let Some(generation) = open.filter(|_| bench.direction.waits()) {
        assert!(bench.direction.answered(generation, &bench.stats));
        assert!(!bench.direction.answered(generation, &bench.stats));
        bench.events.clear();
    }
}
