//! What a run is reported as: latencies, memory of another process, one JSON object on standard output.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const PAGE_BYTES: u64 = 4096;
const SAMPLE_EVERY: Duration = Duration::from_millis(50);
const SETTLE_STEP: Duration = Duration::from_millis(200);
const SETTLE_LIMIT: Duration = Duration::from_secs(10);

/// Latencies in microseconds, all of them kept: a run has a few hundred thousand at most.
#[derive(Default)]
pub struct Latencies(Vec<u32>);

impl Latencies {
    pub fn add(&mut self, latency: Duration) {
        self.0.push(latency.as_micros().min(u128::from(u32::MAX)) as u32);
    }

    pub fn extend(&mut self, other: Latencies) {
        self.0.extend(other.0);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn p99(&mut self) -> f64 {
        self.summary()[1].1
    }

    /// How many took no longer than that.
    pub fn within(&self, most: Duration) -> u64 {
        self.0.iter().filter(|micros| u128::from(**micros) <= most.as_micros()).count() as u64
    }

    /// The p50, p99 and largest latency in milliseconds, by nearest rank.
    pub fn summary(&mut self) -> [(&'static str, f64); 3] {
        self.0.sort_unstable();
        let at = |share: f64| {
            let rank = (share * self.0.len() as f64).ceil() as usize;
            self.0.get(rank.max(1) - 1).map_or(0.0, |micros| f64::from(*micros) / 1000.0)
        };
        [("p50_ms", at(0.50)), ("p99_ms", at(0.99)), ("max_ms", at(1.0))]
    }
}

/// A JSON object that grows by one field per call.
#[derive(Default)]
pub struct Report(Vec<String>);

impl Report {
    pub fn count(mut self, name: &str, value: u64) -> Report {
        self.0.push(format!("\"{name}\": {value}"));
        self
    }

    pub fn number(mut self, name: &str, value: f64) -> Report {
        self.0.push(format!("\"{name}\": {value:.3}"));
        self
    }

    /// A number with more digits, for what is divided by later.
    pub fn precise(mut self, name: &str, value: f64) -> Report {
        self.0.push(format!("\"{name}\": {value:.6}"));
        self
    }

    pub fn text(mut self, name: &str, value: &str) -> Report {
        let safe: String = value.chars().filter(|c| !c.is_control() && *c != '"' && *c != '\\').collect();
        self.0.push(format!("\"{name}\": \"{safe}\""));
        self
    }

    pub fn latencies(mut self, latencies: &mut Latencies) -> Report {
        for (name, value) in latencies.summary() {
            self = self.number(name, value);
        }
        self
    }

    /// Latencies of something else than the scenario's main requests: `ping_p99_ms` and so on.
    pub fn named_latencies(mut self, of: &str, latencies: &mut Latencies) -> Report {
        for (name, value) in latencies.summary() {
            self = self.number(&format!("{of}_{name}"), value);
        }
        self.count(&format!("{of}_samples"), latencies.len() as u64)
    }

    pub fn json(self) -> String {
        format!("{{{}}}", self.0.join(", "))
    }

    pub fn print(self) {
        println!("{}", self.json());
    }
}

/// The resident bytes of a process, from the kernel's cheap (and slightly rough) counter.
pub fn resident_bytes(pid: u64) -> Result<u64, String> {
    let text =
        fs::read_to_string(format!("/proc/{pid}/statm")).map_err(|error| format!("--pid {pid}: {error}"))?;
    let pages = text.split(' ').nth(1).and_then(|word| word.parse::<u64>().ok());
    pages.map(|pages| pages * PAGE_BYTES).ok_or(format!("--pid {pid}: got statm {text:?}"))
}

/// The resident bytes of a process by walking its page tables: exact, and too slow for every 50 ms.
pub fn resident_bytes_exact(pid: u64) -> Result<u64, String> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(path).map_err(|error| format!("--pid {pid}: {error}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or(format!("--pid {pid}: no Rss line in smaps_rollup"))
}

/// The resident bytes once they have stopped changing: two equal looks, 200 ms apart, or the limit. A server may
/// answer before it has loaded everything.
pub fn settled(pid: u64) -> Result<u64, String> {
    let deadline = Instant::now() + SETTLE_LIMIT;
    let mut last = resident_bytes_exact(pid)?;
    loop {
        thread::sleep(SETTLE_STEP);
        let now = resident_bytes_exact(pid)?;
        if now == last || Instant::now() > deadline {
            return Ok(now);
        }
        last = now;
    }
}

/// Samples the resident bytes of a process every 50 ms until asked for the peak.
pub struct PeakSampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl PeakSampler {
    pub fn start(pid: u64) -> PeakSampler {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut peak = 0;
            while !stopped.load(Ordering::Relaxed) {
                peak = peak.max(resident_bytes(pid).unwrap_or(0));
                thread::sleep(SAMPLE_EVERY);
            }
            peak
        });
        PeakSampler { stop, thread }
    }

    pub fn peak(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut latencies = Latencies::default();
        (1..=100).for_each(|millis| latencies.add(Duration::from_millis(millis)));
        assert_eq!(latencies.summary(), [("p50_ms", 50.0), ("p99_ms", 99.0), ("max_ms", 100.0)]);
    }

    #[test]
    fn no_sample_is_reported_as_zero() {
        assert_eq!(Latencies::default().summary()[2], ("max_ms", 0.0));
    }
}
