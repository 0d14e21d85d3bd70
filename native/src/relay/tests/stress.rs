//! Everything at once: pairs that come, move, pause and end in any order while Python asks and answers.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

use super::{frame, reset, Joined, Random, Stand};
use crate::relay::queue::{Cause, Command, Event, Kind};

const ROUNDS: usize = 6_000;
const MOST_PAIRS: usize = 60;

/// What a test knows of a pair while its far ends do as they like.
struct Known {
    joined: Joined,
    asked: Option<u64>,
    owed: bool,
}

/// Checks that events of a pair come in an order that makes sense, and answers questions.
fn judge(event: Event, known: &mut HashMap<u64, Known>, ended: &mut HashSet<u64>) {
    assert!(!ended.contains(&event.pair), "{event:?} after the end");
    if event.kind == Kind::Ended {
        assert_ne!(event.values[0], Cause::Internal as u64);
        ended.insert(event.pair);
        known.remove(&event.pair);
        return;
    }
    let Some(pair) = known.get_mut(&event.pair) else {
        return;
    };
    match event.kind {
        Kind::Frames => {
            assert!(pair.asked.is_none() && !pair.owed, "{event:?}");
            pair.asked = Some(event.values[0]);
        }
        Kind::Inside => {
            assert!(!pair.owed, "{event:?}");
            pair.owed = true;
        }
        Kind::Drained => {
            assert!(pair.owed, "{event:?}");
            pair.owed = false;
        }
        Kind::Passed | Kind::Unwalkable => {}
        kind => panic!("{kind:?}"),
    }
}

fn answer(stand: &Stand, pair: &mut Known) {
    if let Some(generation) = pair.asked.take() {
        pair.owed = true;
        stand.send(&pair.joined, Command::Pass(pair.joined.id, generation));
    }
}

fn write_some(socket: &mut TcpStream, random: &mut Random) {
    let kind = [9, 9, 9, 65, 66, 77][random.below(6)];
    let size = [50, 3_000, 70_000, 400_000][random.below(4)];
    let bytes = frame(kind, random.below(size));
    // A full kernel cuts the frame: the scan then ends or goes astray, which must hurt nobody.
    if let Ok(count) = socket.write(&bytes) {
        assert!(count <= bytes.len());
    }
}

fn read_some(socket: &mut TcpStream, random: &mut Random) {
    let mut bytes = vec![0; 1 + random.below(300_000)];
    let _ = socket.read(&mut bytes);
}

/// Does one thing to one pair; returns whether the test is to let go of its far ends.
fn act(stand: &Stand, pair: &mut Known, random: &mut Random) -> bool {
    let id = pair.joined.id;
    match random.below(40) {
        0..=11 => write_some(&mut pair.joined.client, random),
        12..=22 => write_some(&mut pair.joined.broker, random),
        23..=26 => read_some(&mut pair.joined.client, random),
        27..=29 => read_some(&mut pair.joined.broker, random),
        30 | 31 => stand.engine.pause(id, random.below(2), 2 << random.below(3)),
        32..=34 => stand.engine.resume(id, random.below(2), 14),
        35 => drop(pair.joined.client.shutdown(Shutdown::Write)),
        36 => drop(pair.joined.broker.shutdown(Shutdown::Write)),
        37 => stand.send(&pair.joined, Command::Close(id, random.below(100) as u64)),
        38 => stand.send(&pair.joined, Command::Abort(id)),
        _ => return true,
    }
    false
}

#[test]
fn pairs_that_do_anything_end_once_and_in_order() {
    let mut random = Random(7);
    let mut stand = Stand::new(2);
    let (mut known, mut ended) = (HashMap::new(), HashSet::new());
    let mut count = 0;
    for _ in 0..ROUNDS {
        if known.len() < MOST_PAIRS {
            let joined = stand.join_with(&frame(3, 20), b"first", random.below(3) > 0);
            joined.client.set_nonblocking(true).unwrap();
            joined.broker.set_nonblocking(true).unwrap();
            count += 1;
            known.insert(joined.id, Known { joined, asked: None, owed: false });
        }
        let ids: Vec<u64> = known.keys().copied().collect();
        let id = ids[random.below(ids.len())];
        let pair = known.get_mut(&id).unwrap();
        if random.below(3) == 0 {
            answer(&stand, pair);
        }
        if act(&stand, pair, &mut random) {
            let Known { joined: Joined { client, broker, .. }, .. } = known.remove(&id).unwrap();
            if random.below(2) == 0 {
                reset(client);
            } else {
                reset(broker);
            }
        }
        while let Some(event) = stand.next_within(0) {
            judge(event, &mut known, &mut ended);
        }
    }
    stand.engine.stop();
    while let Some(event) = stand.next_within(0) {
        judge(event, &mut known, &mut ended);
    }
    assert_eq!(ended.len(), count);
    assert!(stand.engine.snapshot(0, usize::MAX).is_empty());
}

#[test]
fn commands_of_many_threads_meet_pairs_that_end() {
    let stand = Stand::new(2);
    let pairs: Vec<Joined> = (0..200).map(|_| stand.join_unix(true)).collect();
    thread::scope(|scope| {
        for part in 0..4 {
            let (engine, pairs) = (&stand.engine, &pairs);
            scope.spawn(move || {
                let mut random = Random(part + 1);
                for _ in 0..5_000 {
                    let id = pairs[random.below(pairs.len())].id;
                    match random.below(30) {
                        0 => engine.send(id, Command::Abort(id)),
                        1 => engine.send(id, Command::Close(id, 10)),
                        2..=9 => engine.pause(id, 1, 2),
                        10..=19 => engine.resume(id, 1, 2),
                        20..=23 => engine.send(id, Command::Pass(id, 1)),
                        24..=27 => drop(engine.snapshot_of(id)),
                        _ => drop(engine.snapshot(0, usize::MAX)),
                    }
                }
            });
        }
    });
    stand.engine.stop();
    let events = stand.engine.events(1_000);
    assert_eq!(events.iter().filter(|(event, _)| event.kind == Kind::Ended).count(), 200);
    assert_eq!(events.len(), 200);
}
