//! The storm: all connections ask at once and read later, or at once. Watches the memory of the server, what the
//! broker was asked, and, with `--pings`, what a small client waits meanwhile.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::lists::{clients, Client, Names, Spread, Storm, Tally};
use crate::session::Target;
use crate::stats::{self, PeakSampler};
use crate::witnesses::Witnesses;

/// All connections ask at t = 0 and begin to read at `--late`; watches the memory of `--pid`.
pub fn run(args: &Args, target: &Target) -> Result<(), String> {
    let (pid, names) = (args.number("pid", 0)?, Names::from(args)?);
    let idle = stats::settled(pid)?;
    let sampler = PeakSampler::start(pid);
    let receive_buffer_bytes = Some(args.number("receive-buffer", 4096)? as i32).filter(|bytes| *bytes > 0);
    let streams =
        Target { receive_buffer_bytes, ..target.clone() }.open_many(args.number("connections", 1000)?)?;
    let connected = stats::resident_bytes(pid)?;
    let clients = clients(streams, &names, "bench", Spread::from(args))?;
    let witnesses = Witnesses::call(args, target)?;
    let (start, storms) = ask(args, clients)?;
    thread::sleep(args.seconds("late", 8.0)?.saturating_sub(start.elapsed()));
    let mut tally = read_in_threads(storms, args.seconds("limit", 60.0)?)?;
    let elapsed = start.elapsed().as_secs_f64();
    let report = tally
        .report()
        .count("answered", tally.answered)
        .count("bytes", tally.bytes)
        .number("seconds_to_end", elapsed)
        .count("idle_rss_bytes", idle)
        .count("connected_rss_bytes", connected)
        .count("peak_rss_bytes", sampler.peak())
        .latencies(&mut tally.latencies);
    witnesses.report(report)?.print();
    Ok(())
}

/// The clients in groups of which each has asked all it will ask, and when the first began to.
fn ask(args: &Args, clients: Vec<Option<Client>>) -> Result<(Instant, Vec<Storm>), String> {
    let depth = args.number("depth", 4)? as usize;
    let start = Instant::now();
    let mut storms = Vec::new();
    for group in split(clients, args.number("threads", 4)?.max(1) as usize) {
        let mut storm = Storm::new(group, depth)?;
        storm.ask_all();
        storms.push(storm);
    }
    Ok((start, storms))
}

fn split(clients: Vec<Option<Client>>, groups: usize) -> Vec<Vec<Option<Client>>> {
    let mut split: Vec<Vec<Option<Client>>> = (0..groups).map(|_| Vec::new()).collect();
    clients.into_iter().enumerate().for_each(|(index, client)| split[index % groups].push(client));
    split
}

/// Read all answers, one thread a group: with 4 KiB windows one reader is bound by the kernel at 150 MB/s, and the
/// storm would measure the reader.
fn read_in_threads(storms: Vec<Storm>, limit: Duration) -> Result<Tally, String> {
    let read = move |mut storm: Storm| {
        storm.register()?;
        storm.drain(limit)?;
        Ok(storm.tally)
    };
    let threads: Vec<_> = storms.into_iter().map(|storm| thread::spawn(move || read(storm))).collect();
    let mut tally = Tally::default();
    for thread in threads {
        let part: io::Result<Tally> = thread.join().map_err(|_| "a reader thread panicked".to_owned())?;
        tally.add(part.map_err(|error| error.to_string())?);
    }
    Ok(tally)
}
