//! The storm: all connections ask at once and read later, or at once. Watches the memory of the server, what the
//! broker was asked, and, with `--pings`, what a small client waits meanwhile.

use std::io;
use std::net::SocketAddrV4;
use std::thread;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::asker::Asker;
use crate::lists::{clients, Client, Names, Spread, Storm, Tally};
use crate::ping::Pinger;
use crate::session::Target;
use crate::stats::{self, PeakSampler, Report};

/// A namespace name as long as those of the storm: the fake broker's answers are computed by length.
const REHEARSED: &str = "bench/ns-00000";

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

/// Who looks on: the broker that counts, and small clients of the server, of the loaded broker behind it, and of a
/// broker that nobody else uses (what the machine alone adds).
struct Witnesses {
    broker: Option<(Asker, u64)>,
    pingers: Vec<(&'static str, Pinger)>,
}

impl Witnesses {
    fn call(args: &Args, target: &Target) -> Result<Witnesses, String> {
        let mut witnesses = Witnesses { broker: None, pingers: Vec::new() };
        let address = args.loopback("broker")?;
        if let Some(address) = address {
            let mut asker = Asker::open(address)?;
            asker.list(REHEARSED, 0).map_err(|error| format!("rehearsal: {error}"))?;
            let asked = asker.counters().map_err(|error| error.to_string())?.0;
            witnesses.broker = Some((asker, asked));
        }
        if args.switch("pings") {
            let watched: [(&str, Option<SocketAddrV4>); 3] =
                [("ping", Some(target.address)), ("broker", address), ("machine", args.loopback("control")?)];
            for (of, address) in watched {
                if let Some(address) = address {
                    witnesses.pingers.push((of, Pinger::start(address)?));
                }
            }
        }
        Ok(witnesses)
    }

    fn report(self, mut report: Report) -> Result<Report, String> {
        for (of, pinger) in self.pingers {
            report = pinger.stop()?.report(of, report);
        }
        if let Some((mut asker, before)) = self.broker {
            let after = asker.counters().map_err(|error| error.to_string())?.0;
            report = report.count("questions", after - before);
        }
        Ok(report)
    }
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
