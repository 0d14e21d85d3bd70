//! Scenarios whose only question is how much memory another process holds: connections at rest, and consumers
//! that never read while their broker floods them.

use std::io::Write;
use std::thread;

use crate::args::Args;
use crate::session::Target;
use crate::stats::{self, PeakSampler, Report};
use crate::wire::{self, Message};

/// Open `--first`, then `--connections` plain connections and report the slope of memory between the two.
pub fn idle(args: &Args, target: &Target) -> Result<(), String> {
    let pid = args.number("pid", 0)?;
    let (first, all) = (args.number("first", 1000)?, args.number("connections", 4000)?);
    if first >= all {
        return Err(format!("--first: got {first}, expected less than --connections {all}"));
    }
    let before = stats::settled(pid)?;
    let mut held = target.open_many(first)?;
    let at_first = stats::settled(pid)?;
    held.extend(target.open_many(all - first)?);
    let at_all = stats::settled(pid)?;
    Report::default()
        .count("idle_rss_bytes", before)
        .count("first", first)
        .count("first_rss_bytes", at_first)
        .count("connections", held.len() as u64)
        .count("peak_rss_bytes", at_all)
        .number("bytes_per_connection", (at_all as f64 - at_first as f64) / (all - first) as f64)
        .print();
    Ok(())
}

/// Open relayed connections, permit messages, never read; the broker behind must run with `--data flood`.
pub fn stalled_consumers(args: &Args, target: &Target) -> Result<(), String> {
    let pid = args.number("pid", 0)?;
    let count = args.number("connections", 500)?;
    let before = stats::settled(pid)?;
    let sampler = PeakSampler::start(pid);
    let mut held = target.open_many(count)?;
    let connected = stats::settled(pid)?;
    let flow = wire::frame(wire::FLOW, &Message::new().varint(1, 0).varint(2, 1_000_000));
    for stream in &mut held {
        stream.write_all(&flow).map_err(|error| format!("flow: {error}"))?;
    }
    thread::sleep(args.seconds("seconds", 10.0)?);
    let after = stats::resident_bytes_exact(pid)?;
    let peak = sampler.peak().max(after);
    Report::default()
        .count("connections", count)
        .count("idle_rss_bytes", before)
        .count("connected_rss_bytes", connected)
        .count("peak_rss_bytes", peak)
        .number("bytes_per_connection", peak.saturating_sub(before) as f64 / count as f64)
        .print();
    Ok(())
}
