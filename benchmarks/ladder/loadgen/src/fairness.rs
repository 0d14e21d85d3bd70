//! Two tenants: a greedy one that keeps thousands of requests outstanding, and polite clients of another that ask for
//! one list at a time. What the polite ones wait is the question; how the greedy one fares is only told.

use std::net::SocketAddrV4;
use std::thread;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::asker::{Answer, Asker};
use crate::lists::{clients, Spread, Storm, Tally};
use crate::session::Target;
use crate::stats::Latencies;
use crate::topics::Names;

const POLITE_CLIENTS: usize = 4;
const ALONE: Duration = Duration::from_secs(1);
/// Between a polite client's answer and its next request.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Polite {
    latencies: Latencies,
    refused: u64,
    lost: u64,
    wrong: u64,
}

/// Polite clients alone, then beside the greedy tenant; requests of the latter are all of different namespaces.
pub fn run(args: &Args, target: &Target) -> Result<(), String> {
    let names = Names::from(args)?;
    let (warmup, seconds) = (args.seconds("warmup", 2.0)?, args.seconds("seconds", 20.0)?);
    let mut alone = polite(target.address, names.least_bytes(), ALONE)?;
    let streams = target.open_many(args.number("connections", 5000)?)?;
    let greedy = clients(streams, &names, "greedy", Spread::PerRequest)?;
    let mut storm = Storm::new(greedy, args.number("depth", 2)? as usize)?;
    storm.register().map_err(|error| error.to_string())?;
    let press = thread::spawn(move || -> std::io::Result<Tally> {
        storm.ask_all();
        storm.read_until(Instant::now() + warmup)?;
        storm.tally.restart();
        storm.read_until(Instant::now() + seconds)?;
        Ok(storm.tally)
    });
    thread::sleep(warmup);
    let mut found = polite(target.address, names.least_bytes(), seconds)?;
    let greedy = press.join().map_err(|_| "the greedy thread panicked".to_owned())?;
    let greedy = greedy.map_err(|error| error.to_string())?;
    greedy
        .report_as("greedy_")
        .number("greedy_per_second", greedy.answered as f64 / seconds.as_secs_f64())
        .count("answered", found.latencies.len() as u64)
        .count("refused", alone.refused + found.refused)
        .count("lost", alone.lost + found.lost)
        .count("wrong", alone.wrong + found.wrong)
        .latencies(&mut found.latencies)
        .named_latencies("alone", &mut alone.latencies)
        .print();
    Ok(())
}

/// What polite clients get in this time; a request that has begun is waited for.
fn polite(address: SocketAddrV4, least_bytes: usize, time: Duration) -> Result<Polite, String> {
    let deadline = Instant::now() + time;
    let ask = move |index: usize| -> Result<Polite, String> {
        let mut asker = Asker::open(address)?;
        let (namespace, mut found) = (format!("polite/ns-{index:05}"), Polite::default());
        while Instant::now() < deadline {
            let begun = Instant::now();
            match asker.list(&namespace, least_bytes) {
                Ok(Answer::Right) => found.latencies.add(begun.elapsed()),
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
    };
    let threads: Vec<_> = (0..POLITE_CLIENTS).map(|index| thread::spawn(move || ask(index))).collect();
    let mut all = Polite::default();
    for thread in threads {
        let one = thread.join().map_err(|_| "a polite thread panicked".to_owned())??;
        all.latencies.extend(one.latencies);
        all.refused += one.refused;
        all.lost += one.lost;
        all.wrong += one.wrong;
    }
    Ok(all)
}
