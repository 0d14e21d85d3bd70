//! What waits for Python: ends first, and little of each pair.

use crate::relay::queue::{Event, EventQueue, Kind};

fn event(kind: Kind, pair: u64, first: u64) -> Event {
    Event { kind, pair, values: [first, 0, 0, 0, 0] }
}

/// Takes all that waits, as kind, pair, and first value.
fn taken(queue: &EventQueue) -> Vec<(Kind, u64, u64)> {
    let events = queue.take(1_000_000);
    events.iter().map(|event| (event.kind, event.pair, event.values[0])).collect()
}

#[test]
fn an_end_waits_behind_no_question_of_another_pair() {
    let queue = EventQueue::new().unwrap();
    for pair in 1..1_000 {
        queue.append(&mut vec![event(Kind::Frames, pair, 1)]);
    }
    queue.append(&mut vec![event(Kind::Left, 1_000, 5), event(Kind::Ended, 1_000, 1), event(Kind::Frames, 1_001, 1)]);
    let first: Vec<Kind> = queue.take(2).iter().map(|event| event.kind).collect();
    assert_eq!(first, [Kind::Left, Kind::Ended]);
    let pairs: Vec<u64> = taken(&queue).iter().map(|event| event.1).collect();
    assert_eq!(pairs, (1..1_000).chain([1_001]).collect::<Vec<_>>());
}

#[test]
fn what_a_pair_told_before_its_end_is_heard_before_its_end() {
    let queue = EventQueue::new().unwrap();
    queue.append(&mut vec![event(Kind::Frames, 1, 1), event(Kind::Frames, 2, 1), event(Kind::Drained, 2, 1)]);
    queue.append(&mut vec![event(Kind::Passed, 2, 0), event(Kind::Frames, 3, 1), event(Kind::Ended, 2, 1)]);
    let expected = [
        (Kind::Frames, 2, 1),
        (Kind::Drained, 2, 1),
        (Kind::Passed, 2, 0),
        (Kind::Ended, 2, 1),
        (Kind::Frames, 1, 1),
        (Kind::Frames, 3, 1),
    ];
    assert_eq!(taken(&queue), expected);
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
