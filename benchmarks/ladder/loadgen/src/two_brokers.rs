//! Two brokers, one of which has stopped answering: clients of the other must not notice. The broker behind the
//! server redirects lookups of `elsewhere` to the silent one; those hang, and nobody measures them.

use std::io::Write;
use std::net::SocketAddrV4;
use std::thread;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::asker::{self, Answer, Asker};
use crate::broker::ELSEWHERE;
use crate::link::Link;
use crate::session::Target;
use crate::stats::{Latencies, Report};
use crate::topics::Names;

const CLIENTS: usize = 4;
/// Between a client's answer and its next request: the server is never busy, so that what is waited for is the broker.
const PAUSE: Duration = Duration::from_millis(2);
/// Before the first of the two measurements, or the first would be the one of a cold server.
const WARMUP: Duration = Duration::from_secs(3);
const SETTLE: Duration = Duration::from_millis(300);

#[derive(Default)]
struct Found {
    lookups: Latencies,
    lists: Latencies,
    refused: u64,
    lost: u64,
    wrong: u64,
}

/// Measure twice: while nobody asks for the silent broker, and while `--connections` x `--depth` lookups hang on it.
pub fn run(args: &Args, target: &Target) -> Result<(), String> {
    let silent = args.loopback("silent-broker")?.ok_or("got no --silent-broker, expected 127.0.0.1:PORT")?;
    let (names, seconds) = (Names::from(args)?, args.seconds("seconds", 4.0)?);
    measured(target.address, &names, WARMUP)?;
    let before = hanging(silent)?;
    let mut alone = measured(target.address, &names, seconds)?;
    let _held = hang(target, args.number("connections", 20)?, args.number("depth", 50)?)?;
    thread::sleep(SETTLE);
    let mut beside = measured(target.address, &names, seconds)?;
    let ratio = |one: &mut Latencies, other: &mut Latencies| one.summary()[1].1 / other.summary()[1].1;
    Report::default()
        .count("hanging", hanging(silent)? - before)
        .count("refused", alone.refused + beside.refused)
        .count("lost", alone.lost + beside.lost)
        .count("wrong", alone.wrong + beside.wrong)
        .number("lookup_p99_ratio", ratio(&mut beside.lookups, &mut alone.lookups))
        .number("list_p99_ratio", ratio(&mut beside.lists, &mut alone.lists))
        .named_latencies("lookup_alone", &mut alone.lookups)
        .named_latencies("lookup", &mut beside.lookups)
        .named_latencies("list_alone", &mut alone.lists)
        .named_latencies("list", &mut beside.lists)
        .print();
    Ok(())
}

fn hanging(silent: SocketAddrV4) -> Result<u64, String> {
    Ok(Asker::open(silent)?.counters().map_err(|error| error.to_string())?.1)
}

/// Connections with lookups that will not be answered.
fn hang(target: &Target, connections: u64, depth: u64) -> Result<Vec<Link>, String> {
    let mut held = target.open_many(connections)?;
    for (index, stream) in held.iter_mut().enumerate() {
        let topic = |id| format!("persistent://bench/{ELSEWHERE}/topic-{index:05}-{id:05}");
        let questions: Vec<u8> = (1..=depth).flat_map(|id| asker::lookup(id, &topic(id))).collect();
        stream.write_all(&questions).map_err(|error| format!("hanging lookups: {error}"))?;
    }
    Ok(held)
}

fn measured(address: SocketAddrV4, names: &Names, time: Duration) -> Result<Found, String> {
    let (deadline, least_bytes) = (Instant::now() + time, names.least_bytes());
    let client = move |index| one_client(address, index, least_bytes, deadline);
    let threads: Vec<_> = (0..CLIENTS).map(|index| thread::spawn(move || client(index))).collect();
    let mut all = Found::default();
    for thread in threads {
        let one = thread.join().map_err(|_| "a client thread panicked".to_owned())??;
        all.lookups.extend(one.lookups);
        all.lists.extend(one.lists);
        all.refused += one.refused;
        all.lost += one.lost;
        all.wrong += one.wrong;
    }
    Ok(all)
}

fn one_client(
    address: SocketAddrV4,
    index: usize,
    least_bytes: usize,
    deadline: Instant,
) -> Result<Found, String> {
    let mut asker = Asker::open(address)?;
    let (namespace, topic) =
        (format!("bench/ns-{index:05}"), format!("persistent://bench/here/topic-{index}"));
    let (mut found, mut turn) = (Found::default(), 0);
    while Instant::now() < deadline {
        turn += 1;
        let begun = Instant::now();
        let (answer, latencies) = if turn % 2 == 0 {
            (asker.lookup(&topic), &mut found.lookups)
        } else {
            (asker.list(&namespace, least_bytes), &mut found.lists)
        };
        match answer {
            Ok(Answer::Right) => latencies.add(begun.elapsed()),
            Ok(Answer::Wrong) => found.wrong += 1,
            Ok(Answer::Refused) => found.refused += 1,
            Err(_) => {
                found.lost += 1;
                break;
            }
        }
        thread::sleep(PAUSE);
    }
    Ok(found)
}
