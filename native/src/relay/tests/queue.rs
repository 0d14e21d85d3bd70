//! What waits for Python: ends first, and little of each pair.

use std::collections::{HashMap, VecDeque};

use super::Random;
use crate::relay::hand_over::Line;
use crate::relay::queue::{Event, EventQueue, Kind, Waiting};
use crate::relay::sys;

fn event(kind: Kind, pair: u64, first: u64) -> Event {
    Event { kind, pair, values: [first, 0, 0, 0, 0] }
}

/// Takes all that waits, as kind, pair, and first value.
fn taken(queue: &EventQueue) -> Vec<(Kind, u64, u64)> {
    let events = queue.take(1_000_000);
    events.iter().map(|event| (event.kind, event.pair, event.values[0])).collect()
}

#[test]
fn one_inside_of_a_pair_waits_at_most_and_the_next_that_python_hears_has_its_drained() {
    let queue = EventQueue::new().unwrap();
    for generation in 1..=1_000 {
        queue.append(&mut vec![event(Kind::Inside, 7, generation), event(Kind::Drained, 7, generation)]);
    }
    queue.append(&mut vec![event(Kind::Inside, 8, 1)]);
    assert_eq!(taken(&queue), [(Kind::Inside, 7, 1), (Kind::Drained, 7, 1), (Kind::Inside, 8, 1)]);
    queue.append(&mut vec![event(Kind::Inside, 7, 1_001)]);
    queue.append(&mut vec![event(Kind::Drained, 7, 1_001), event(Kind::Frames, 7, 1_002)]);
    let expected = [(Kind::Inside, 7, 1_001), (Kind::Drained, 7, 1_001), (Kind::Frames, 7, 1_002)];
    assert_eq!(taken(&queue), expected);
}

#[test]
fn random_events_are_heard_once_in_the_order_of_their_pair_and_ends_first() {
    const KINDS: [Kind; 4] = [Kind::Frames, Kind::Passed, Kind::Left, Kind::BodyMoved];
    let mut random = Random(3);
    for round in 0..if cfg!(miri) { 10 } else { 2_000 } {
        let (mut waiting, mut given) = (Waiting::default(), HashMap::<u64, VecDeque<Event>>::new());
        let (mut ended, mut number, mut next) = (0, 0, 8);
        let mut pairs: Vec<u64> = (0..8).collect();
        for _ in 0..200 {
            let mut batch = Vec::new();
            for _ in 0..random.below(4) {
                let place = random.below(pairs.len());
                let kind = if random.below(4) == 0 { Kind::Ended } else { KINDS[random.below(KINDS.len())] };
                number += 1;
                batch.push(event(kind, pairs[place], number));
                given.entry(pairs[place]).or_default().push_back(event(kind, pairs[place], number));
                if kind == Kind::Ended {
                    // A pair tells nothing behind its end.
                    ended += 1;
                    pairs[place] = next;
                    next += 1;
                }
            }
            waiting.append(&mut batch);
            for _ in 0..random.below(5) {
                assert_eq!(waiting.is_empty(), given.is_empty(), "round {round}");
                let Some(heard) = waiting.pop() else {
                    break;
                };
                let of_pair = given.get_mut(&heard.pair).expect("an event that was given");
                assert_eq!(of_pair.pop_front(), Some(heard), "round {round}");
                // Until the last end is heard nothing of a pair that lives is.
                assert!(ended == 0 || of_pair.back().unwrap_or(&heard).kind == Kind::Ended, "round {round}");
                ended -= u32::from(heard.kind == Kind::Ended);
                if of_pair.is_empty() {
                    given.remove(&heard.pair);
                }
            }
        }
    }
}

#[test]
fn the_end_of_a_pair_looks_at_no_event_of_others() {
    const PAIRS: u64 = 20_000;
    let mut waiting = Waiting::default();
    waiting.append(&mut (0..PAIRS).map(|pair| event(Kind::Frames, pair, 1)).collect());
    // Processor time: a busy machine makes nothing else of it. Looks at all others would take seconds.
    let began = sys::thread_cpu_micros();
    for pair in (0..PAIRS).rev() {
        waiting.append(&mut vec![event(Kind::Ended, pair, 1)]);
    }
    let taken = sys::thread_cpu_micros() - began;
    assert!(taken < 500_000, "{taken} us");
    assert_eq!(std::iter::from_fn(|| waiting.pop()).count() as u64, 2 * PAIRS);
    assert!(waiting.is_empty());
}
