//! Consumers that stop reading while their broker floods them: what the process and its sockets hold for each, and what
//! a consumer beside them, which reads, still gets.

use std::io::{Read, Write};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::link::Link;
use crate::session::Target;
use crate::stats::{self, Report};
use crate::wire::{self, Message};

const READ_BYTES: usize = 256 * 1024;
const ALONE: Duration = Duration::from_secs(4);
/// A reader's timeout: a proxy that forgets it must not hold the run up.
const SILENCE: Duration = Duration::from_secs(10);

/// A consumer that reads all it gets, on a thread of its own.
struct Beside {
    bytes: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Beside {
    fn start(mut stream: Link) -> Beside {
        let beside = Beside { bytes: Arc::default(), stop: Arc::default() };
        let (bytes, stop) = (Arc::clone(&beside.bytes), Arc::clone(&beside.stop));
        thread::spawn(move || {
            let mut buffer = vec![0; READ_BYTES];
            while !stop.load(Relaxed) {
                match stream.read(&mut buffer) {
                    Ok(0) | Err(_) => return,
                    Ok(count) => bytes.fetch_add(count as u64, Relaxed),
                };
            }
        });
        beside
    }

    /// Returns the MB of each second of a time.
    fn measure(&self, time: Duration) -> f64 {
        let (before, began) = (self.bytes.load(Relaxed), Instant::now());
        thread::sleep(time);
        (self.bytes.load(Relaxed) - before) as f64 / 1e6 / began.elapsed().as_secs_f64()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

/// Returns the kernel memory of a process's TCP sockets as `ss` tells it: receive and send queues, what is allocated
/// ahead, and the backlog.
fn socket_bytes(pid: u64) -> Result<u64, String> {
    let told = Command::new("ss").args(["-tmnpH"]).output().map_err(|error| format!("ss: {error}"))?;
    Ok(sum_of(&String::from_utf8_lossy(&told.stdout), pid))
}

/// `ss` says the owner and the memory of a socket on one line, or the memory on the next.
fn sum_of(told: &str, pid: u64) -> u64 {
    let owner = format!("pid={pid},");
    let (mut sum, mut ours) = (0, false);
    for line in told.lines() {
        if line.contains("users:") || !line.starts_with(char::is_whitespace) {
            ours = line.contains(&owner);
        }
        let Some((_, numbers)) = line.split_once("skmem:(").filter(|_| ours) else {
            continue;
        };
        let numbers = numbers.split(')').next().unwrap_or_default().split(',');
        for number in numbers {
            let name = number.trim_end_matches(|sign: char| sign.is_ascii_digit());
            if ["r", "w", "f", "bl"].contains(&name) {
                // What is allocated ahead can be below zero for a moment, and `ss` tells it as unsigned: as 4 GiB.
                let value = number[name.len()..].parse::<u32>().unwrap_or(0) as i32;
                sum += value.max(0) as u64;
            }
        }
    }
    sum
}

fn permit(stream: &mut Link) -> Result<(), String> {
    let flow = wire::frame(wire::FLOW, &Message::new().varint(1, 0).varint(2, 1_000_000));
    stream.write_all(&flow).map_err(|error| format!("flow: {error}"))
}

/// Let consumers stop at once, and look `--seconds` later; the broker behind must run with `--data flood`.
pub fn run(args: &Args, target: &Target) -> Result<(), String> {
    let pid = args.number("pid", 0)?;
    let count = args.number("connections", 500)?;
    let wait = args.seconds("seconds", 15.0)?;
    let idle = stats::settled(pid)?;
    let mut reader = target.open_many(1)?;
    let mut reader = reader.pop().ok_or("no reader")?;
    reader.set_read_timeout(Some(SILENCE)).map_err(|error| format!("reader: {error}"))?;
    permit(&mut reader)?;
    let beside = Beside::start(reader);
    let alone = beside.measure(ALONE);
    let before = stats::resident_bytes_exact(pid)? + socket_bytes(pid)?;
    let mut held = target.open_many(count)?;
    for stream in &mut held {
        permit(stream)?;
    }
    let rest = wait.saturating_sub(ALONE);
    thread::sleep(wait - rest);
    let with_others = beside.measure(rest.max(Duration::from_secs(1)));
    let resident = stats::resident_bytes_exact(pid)?;
    let sockets = socket_bytes(pid)?;
    Report::default()
        .count("connections", count)
        .count("idle_rss_bytes", idle)
        .count("peak_rss_bytes", resident)
        .count("socket_bytes", sockets)
        .number("bytes_per_connection", (resident + sockets).saturating_sub(before) as f64 / count as f64)
        .number("alone_mb_per_second", alone)
        .number("beside_mb_per_second", with_others)
        .precise("reader_ratio", if alone > 0.0 { with_others / alone } else { 0.0 })
        .print();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::sum_of;

    #[test]
    fn memory_is_that_of_the_sockets_of_one_process() {
        let told = "ESTAB 0 0 1.1.1.1:1 2.2.2.2:2 users:((\"x\",pid=7,fd=3))\n\
                    \t skmem:(r10,rb99,t0,tb99,f5,w100,o0,bl1,d0)\n\
                    ESTAB 0 0 1.1.1.1:1 2.2.2.2:2 users:((\"y\",pid=77,fd=3)) skmem:(r1000,rb9,t0,tb9,f0,w0,o0,bl0,d0)\n\
                    ESTAB 0 0 1.1.1.1:1 2.2.2.2:2 users:((\"x\",pid=7,fd=4)) skmem:(r0,rb9,t0,tb9,f0,w4,o0,bl0,d0)\n";
        assert_eq!(sum_of(told, 7), 120);
        assert_eq!(sum_of(told, 8), 0);
    }

    #[test]
    fn what_is_allocated_ahead_and_below_zero_is_no_4_gib() {
        let told = "ESTAB 0 0 1.1.1.1:1 2.2.2.2:2 users:((\"x\",pid=7,fd=3)) skmem:(r9,rb9,t0,tb9,f4294963200,w0,o0,bl0,d0)";
        assert_eq!(sum_of(told, 7), 9);
    }
}
