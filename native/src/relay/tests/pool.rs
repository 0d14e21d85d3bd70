//! The relay pool: what it grants, who waits, and that memory comes back.

use std::collections::HashMap;
use std::io::Write;
use std::os::fd::AsFd;

use super::{fill, noise, read, reset, tcp, until, Joined, Random, Stand, BUFFER, NO_LIMITS};
use crate::relay::engine::Limits;
use crate::relay::pool::{Pool, PoolRecord, Share, PAUSED_BY_POOL};
use crate::relay::queue::Command;
use crate::relay::sys;
use crate::relay::worker::Clock;

const UNSENT: usize = 64 * 1024;
/// A rest of any read uses this up.
const LITTLE: usize = 16;
/// More than a stopped reader's buffers take.
const FLOOD: usize = 16 * 1024 * 1024;

fn limited(threads: usize, pool_bytes: usize) -> Stand {
    let limits = Limits { pool_bytes: pool_bytes as u64, unsent_bytes: UNSENT, ..NO_LIMITS };
    Stand::limited(threads, BUFFER, limits)
}

fn pool(stand: &Stand) -> PoolRecord {
    stand.engine.pool_record().expect("a pool")
}

/// A pair whose client's socket takes little, as a relay of the proxy begins.
fn join(stand: &Stand) -> Joined {
    let (client, broker) = (tcp(), tcp());
    for side in [&client.0, &broker.0] {
        sys::set_unsent(side, UNSENT as i32);
    }
    sys::set_buffers(client.1.as_fd(), 16 * 1024);
    stand.join_sockets(client, broker, b"", b"", false)
}

#[test]
fn what_the_receiver_takes_is_never_charged() {
    let stand = limited(1, BUFFER);
    let mut pair = join(&stand);
    let bytes = noise(4 * BUFFER);
    let (client, sent) = (&mut pair.client, bytes.clone());
    let mut broker = pair.broker.try_clone().unwrap();
    let writer = std::thread::spawn(move || broker.write_all(&sent).unwrap());
    assert_eq!(read(client, bytes.len()), bytes);
    writer.join().unwrap();
    until("all memory back", || pool(&stand).used == 0);
}

#[test]
fn a_pool_is_passed_by_one_read_at_most_and_all_else_waits() {
    let stand = limited(2, 2 * BUFFER);
    let mut pairs: Vec<Joined> = (0..6).map(|_| join(&stand)).collect();
    let bytes = noise(FLOOD);
    let sent: Vec<usize> = pairs.iter_mut().map(|pair| fill(&mut pair.broker, &bytes)).collect();
    assert!(sent.iter().all(|count| *count < FLOOD), "every reader stands still");
    let full = pool(&stand);
    assert!(full.used >= full.limit && full.used <= full.limit + 2 * BUFFER as u64, "{full:?}");
    assert!(full.muted >= 2 && full.overshoots >= 1, "{full:?}");
    let held: u64 = pairs.iter().map(|pair| u64::from(stand.record(pair).held_for_client)).sum();
    assert!(held > 0 && held <= pool(&stand).used, "the pool has all that is held in its book");
    // Every byte arrives, whoever waited.
    for (pair, count) in pairs.iter_mut().zip(sent) {
        assert!(read(&mut pair.client, count) == bytes[..count]);
    }
    until("nothing held", || pool(&stand).used == 0 && pool(&stand).muted == 0);
    assert!(pool(&stand).muted_ms > 0 && pool(&stand).depleted_ms > 0);
}

#[test]
fn a_pair_whose_receiver_reads_is_served_while_others_use_the_pool_up() {
    let stand = limited(1, BUFFER);
    let mut stalled: Vec<Joined> = (0..4).map(|_| join(&stand)).collect();
    let bytes = noise(FLOOD);
    for pair in &mut stalled {
        fill(&mut pair.broker, &bytes);
    }
    assert!(pool(&stand).used >= pool(&stand).limit);
    let mut pair = join(&stand);
    let sent = bytes.clone();
    let mut broker = pair.broker.try_clone().unwrap();
    let writer = std::thread::spawn(move || broker.write_all(&sent).unwrap());
    assert!(read(&mut pair.client, FLOOD) == bytes);
    writer.join().unwrap();
    assert_eq!(stand.record(&pair).held_for_client, 0);
    assert!(pool(&stand).used >= pool(&stand).limit, "the others still hold all of it");
}

#[test]
fn memory_comes_back_when_a_pair_is_reset_aborted_or_closed() {
    let mut stand = limited(1, LITTLE);
    let bytes = noise(FLOOD);
    for end in 0..3 {
        let mut pair = join(&stand);
        fill(&mut pair.broker, &bytes);
        until("held bytes", || pool(&stand).used > 0);
        let mut waits = join(&stand);
        fill(&mut waits.broker, &bytes);
        until("another that waits", || pool(&stand).muted == 1);
        let Joined { id, client, broker } = pair;
        match end {
            0 => reset(client),
            1 => stand.engine.send(id, Command::Abort(id)),
            _ => stand.engine.send(id, Command::Close(id, 50)),
        }
        assert_eq!(stand.next().pair, id);
        drop(broker);
        // The memory goes to the one that waited, and that ends, too.
        until("a turn", || pool(&stand).muted == 0 || pool(&stand).used > 0);
        stand.send(&waits, Command::Abort(waits.id));
        assert_eq!(stand.next().pair, waits.id);
        until("all memory back", || pool(&stand).used == 0 && pool(&stand).muted == 0);
    }
}

#[test]
fn another_reason_holds_when_the_wait_for_memory_ends() {
    let stand = limited(1, LITTLE);
    let bytes = noise(FLOOD);
    let mut first = join(&stand);
    let sent = fill(&mut first.broker, &bytes);
    let mut second = join(&stand);
    let more = fill(&mut second.broker, &bytes);
    until("a wait", || stand.record(&second).pauses_to_client == PAUSED_BY_POOL);
    stand.engine.pause(second.id, 1, 8);
    assert!(read(&mut first.client, sent) == bytes[..sent]);
    stand.until(&second, |record| record.pauses_to_client == 8);
    let before = stand.record(&second).to_client_bytes;
    read(&mut second.client, 1);
    assert_eq!(stand.record(&second).to_client_bytes, before);
    stand.engine.resume(second.id, 1, 8);
    assert!(read(&mut second.client, more - 1) == bytes[1..more]);
}

#[test]
fn socket_memory_is_read_within_two_seconds_and_goes_with_the_pair() {
    let mut stand = Stand::new(2);
    let mut pair = stand.join();
    sys::set_unsent(&pair.client, 0);
    fill(&mut pair.broker, &noise(FLOOD));
    until("the weight of both sockets", || {
        let (brokers, clients) = stand.engine.socket_memory();
        let (from_brokers, from_clients) = stand.engine.received_memory();
        brokers > 10_000 && clients > 10_000 && from_brokers > 10_000 && from_clients == 0
    });
    stand.send(&pair, Command::Abort(pair.id));
    stand.next();
    assert_eq!(stand.engine.socket_memory(), (0, 0));
}

// --- the line, without sockets ---------------------------------------------------------------------

struct Sink(usize);

impl crate::relay::direction::Ends for Sink {
    fn receive(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        unreachable!()
    }
    fn send(&mut self, _: &[u8]) -> std::io::Result<usize> {
        unreachable!()
    }
    fn fill(&mut self, _: &mut crate::relay::pipes::Pipe, _: usize) -> std::io::Result<usize> {
        unreachable!()
    }
    fn empty(&mut self, _: &mut crate::relay::pipes::Pipe) -> std::io::Result<usize> {
        unreachable!()
    }
    fn room(&mut self, _: usize) -> usize {
        self.0
    }
    fn finish(&mut self) {}
}

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
                    let allowed = mutes[one].allowance((one as u64, 1), lane, &mut Sink(0), &mut share);
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
                        let allowed = mutes[turn].allowance((id, 1), lane, &mut Sink(0), &mut share);
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

#[test]
fn the_line_begins_at_another_place_each_time() {
    use crate::relay::pool::Mute;
    use crate::relay::stats::Stats;
    let pool = std::sync::Arc::new(Pool::new(1, 1, 1, Clock::start()).unwrap());
    let mut share = Share::new(std::sync::Arc::clone(&pool), 0, 0);
    let mut firsts = std::collections::HashSet::new();
    for _ in 0..64 {
        let stats: Vec<Stats> = (0..8).map(|id| Stats::new(id, 0, 0)).collect();
        let mut mutes: Vec<Mute> = (0..8).map(|_| Mute::default()).collect();
        pool.change(0, 1);
        for (id, mute) in mutes.iter_mut().enumerate() {
            assert_eq!(mute.allowance((id as u64, 0), &stats[id].lanes[0], &mut Sink(0), &mut share), 0);
        }
        pool.change(1, 0);
        let order: Vec<u64> = std::iter::from_fn(|| share.admit()).map(|(id, _)| id).collect();
        firsts.insert(order[0]);
        let mut rotated: Vec<u64> = (0..8).collect();
        rotated.rotate_left(order[0] as usize);
        assert_eq!(order, rotated, "in the order of their coming, from there on");
    }
    assert!(firsts.len() > 3, "{firsts:?}");
}
