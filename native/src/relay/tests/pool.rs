//! The line of the relay pool, without sockets; what a proxy promises of it is in tests/integration/test_kip72.py.

use std::collections::HashMap;

use super::direction::Script;
use super::Random;
use crate::relay::pool::{Pool, Share};
use crate::relay::worker::Clock;

/// Holds a part of a read.
fn hold(lane: &crate::relay::stats::Lane, random: &mut Random, read: usize) {
    let kept = 1 + random.below(read);
    lane.set_held(1 + random.below(kept), kept);
}

/// Random reads, releases and ends of many directions against the promises of the pool.
#[test]
fn the_books_are_the_sum_of_what_is_kept_and_everybody_has_a_turn() {
    use crate::relay::pool::Mute;
    use crate::relay::stats::Stats;
    const READ: u64 = 100;
    const LIMIT: u64 = 250;
    const DIRECTIONS: usize = 9;
    for seed in 1..200 {
        let mut random = Random(seed);
        let pool = std::sync::Arc::new(Pool::new(LIMIT, 1, READ as usize, Clock::start()).unwrap());
        let mut share = Share::new(std::sync::Arc::clone(&pool), 0, 0);
        let stats: Vec<Stats> = (0..DIRECTIONS as u64).map(|id| Stats::charging(Some(&pool), id, 0, 0)).collect();
        let mut mutes: Vec<Mute> = (0..DIRECTIONS).map(|_| Mute::default()).collect();
        let mut waited: HashMap<usize, usize> = HashMap::new();
        for _ in 0..300 {
            let one = random.below(DIRECTIONS);
            let lane = &stats[one].lanes[1];
            match random.below(3) {
                // Readable: reads if nothing is held, and its sink takes a part.
                0 if lane.held() == 0 => {
                    let allowed = mutes[one].allowance((one as u64, 1), lane, &mut Script::default(), &mut share);
                    if allowed == 0 {
                        waited.entry(one).or_insert(0);
                    } else {
                        hold(lane, &mut random, READ as usize);
                    }
                }
                // The sink takes all that is held, or the pair ends.
                1 => {
                    lane.set_held(0, 0);
                    if random.below(8) == 0 {
                        mutes[one].end(lane, &mut share);
                        waited.remove(&one);
                    }
                }
                _ => {
                    while let Some((id, number)) = share.admit() {
                        let turn = id as usize;
                        assert_eq!(number, 1);
                        assert!(waited.remove(&turn).is_some(), "only who waits has a turn");
                        let lane = &stats[turn].lanes[1];
                        mutes[turn].grant(lane);
                        let allowed = mutes[turn].allowance((id, 1), lane, &mut Script::default(), &mut share);
                        assert_eq!(allowed, usize::MAX);
                        hold(lane, &mut random, READ as usize);
                        for turns in waited.values_mut() {
                            *turns += 1;
                            assert!(*turns <= 2 * DIRECTIONS, "somebody starves");
                        }
                    }
                }
            }
            let kept: u64 = stats.iter().map(|each| each.lanes[1].kept()).sum();
            assert_eq!(pool.record().used, kept);
            assert!(kept < LIMIT + READ, "more than one read above the limit");
            assert_eq!(pool.record().muted as usize, waited.len());
        }
    }
}
