//! How much memory another process holds for connections at rest.

use crate::args::Args;
use crate::session::Target;
use crate::stats::{self, Report};

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
