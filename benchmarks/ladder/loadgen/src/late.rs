//! The storm: all connections ask at once and read later, or at once. Watches the memory of the server, what the
//! broker was asked, and, with `--pings`, what a small client waits meanwhile. The mixed storm is asked twice: without
//! the clients that read later, and with them.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::link::Link;
use crate::lists::{clients, Client, Spread, Storm, Tally};
use crate::session::Target;
use crate::stats::{self, PeakSampler};
use crate::topics::Names;
use crate::witnesses::Witnesses;

/// All connections ask at t = 0 and begin to read at `--late`; watches the memory of `--pid`. So many `--rehearsals`
/// come before, each with connections of its own.
pub fn run(args: &Args, target: &Target) -> Result<(), String> {
    let (pid, names) = (args.number("pid", 0)?, Names::from(args)?);
    for _ in 0..args.number("rehearsals", 0)? {
        rehearse(args, target, &names)?;
    }
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

fn rehearse(args: &Args, target: &Target, names: &Names) -> Result<(), String> {
    let streams = target.open_many(args.number("connections", 1000)?)?;
    let (_, storms) = ask(args, clients(streams, names, "bench", Spread::from(args))?)?;
    read_in_threads(storms, args.seconds("limit", 60.0)?).map(drop)
}

/// `--connections` ask at once and read at once; then they and `--slow` more do, of which those read at `--late`. With
/// `--again` the quick ones of the second storm are those of the first, else they connect anew.
pub fn mixed(args: &Args, target: &Target) -> Result<(), String> {
    let (pid, names) = (args.number("pid", 0)?, Names::from(args)?);
    let (idle, sampler) = (stats::settled(pid)?, PeakSampler::start(pid));
    let (quick, slow) = (args.number("connections", 800)?, args.number("slow", 200)?);
    let limit = args.seconds("limit", 60.0)?;
    let (mut alone, streams) = alone(args, target.open_many(quick)?, &names, limit)?;
    let streams = match args.switch("again") {
        true => streams,
        false => target.open_many(quick)?,
    };
    let shut = Target { receive_buffer_bytes: Some(4096), ..target.clone() };
    let late = clients(shut.open_many(slow)?, &names, "late", Spread::PerConnection)?;
    let (start, late) = ask(args, late)?;
    let (_, beside) = ask(args, clients(streams, &names, "beside", Spread::PerConnection)?)?;
    let reading = thread::spawn(move || read_in_threads(beside, limit));
    thread::sleep(args.seconds("late", 8.0)?.saturating_sub(start.elapsed()));
    let late_began = start.elapsed();
    let mut late = read_in_threads(late, limit)?;
    let mut beside = reading.join().map_err(|_| "a reader thread panicked".to_owned())??;
    let (before, after) = (alone.latencies.p99(), beside.latencies.p99());
    let mut all = Tally::default();
    let report = late.report_as("late_").count("late_answered", late.answered).latencies(&mut late.latencies);
    let report = report
        .count("quick_answered", beside.answered)
        .count("before_late", beside.latencies.within(late_began))
        .number("quick_ratio", after / before)
        .named_latencies("alone", &mut alone.latencies)
        .named_latencies("quick", &mut beside.latencies);
    for tally in [alone, beside, late] {
        all.add(tally);
    }
    report
        .count("answered", all.answered)
        .count("refused", all.refused)
        .count("lost", all.lost)
        .count("wrong", all.wrong)
        .count("idle_rss_bytes", idle)
        .count("peak_rss_bytes", sampler.peak())
        .number("seconds_to_end", start.elapsed().as_secs_f64())
        .print();
    Ok(())
}

/// The storm without slow clients; its connections stay open.
fn alone(
    args: &Args,
    streams: Vec<Link>,
    names: &Names,
    limit: Duration,
) -> Result<(Tally, Vec<Link>), String> {
    let (_, storms) = ask(args, clients(streams, names, "alone", Spread::PerConnection)?)?;
    let mut all = (Tally::default(), Vec::new());
    let read = move |mut storm: Storm| {
        storm.register()?;
        storm.finish(limit)?;
        Ok::<_, io::Error>(storm.into_links())
    };
    let threads: Vec<_> = storms.into_iter().map(|storm| thread::spawn(move || read(storm))).collect();
    for thread in threads {
        let part = thread.join().map_err(|_| "a reader thread panicked".to_owned())?;
        let (tally, links) = part.map_err(|error| error.to_string())?;
        all.0.add(tally);
        all.1.extend(links);
    }
    Ok(all)
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
