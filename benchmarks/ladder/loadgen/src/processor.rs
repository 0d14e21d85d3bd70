//! The processor time of the processes of a run, and of the busiest thread of each, between two looks. Knows nothing
//! of what they do.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::process;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::stats::Report;
use crate::sys;

/// Processes by name. The load generator itself is always one of them: `load`.
pub struct Watched(Vec<(String, u64)>);

/// What each process has had so far.
pub struct Look {
    at: Instant,
    processes: Vec<Had>,
}

struct Had {
    name: String,
    whole: Duration,
    threads: HashMap<u64, Duration>,
}

impl Watched {
    /// Those of `--watch NAME=PID,NAME=PID`.
    pub fn from(args: &Args) -> Result<Watched, String> {
        let text = args.text("watch", "");
        let one = |pair: &str| {
            let (name, pid) = pair.split_once('=')?;
            Some((name.to_owned(), pid.parse().ok()?))
        };
        let named: Option<Vec<_>> = text.split(',').filter(|pair| !pair.is_empty()).map(one).collect();
        let mut named = named.ok_or(format!("--watch: got {text:?}, expected NAME=PID,NAME=PID"))?;
        named.push(("load".to_owned(), u64::from(process::id())));
        Ok(Watched(named))
    }

    pub fn look(&self) -> Result<Look, String> {
        let at = Instant::now();
        let one = |(name, pid): &(String, u64)| Ok(Had { name: name.clone(), ..Had::of(*pid)? });
        let processes = self.0.iter().map(one).collect::<Result<_, String>>()?;
        Ok(Look { at, processes })
    }
}

impl Had {
    fn of(pid: u64) -> Result<Had, String> {
        let whole = sys::cpu_time(pid).map_err(|error| format!("--watch {pid}: {error}"))?;
        Ok(Had { name: String::new(), whole, threads: threads(pid)? })
    }

    /// Seconds since an earlier look: of the process, and of the thread that had most. A thread that has begun since
    /// then had nothing before; one that has ended counts for the process only.
    fn since(&self, earlier: &Had) -> (f64, f64) {
        let more = |(id, now): (&u64, &Duration)| {
            now.saturating_sub(earlier.threads.get(id).copied().unwrap_or_default())
        };
        let busiest = self.threads.iter().map(more).max().unwrap_or_default();
        (self.whole.saturating_sub(earlier.whole).as_secs_f64(), busiest.as_secs_f64())
    }
}

impl Look {
    /// The cores that each process kept busy from this look to a later one, and how much of a core its busiest thread
    /// did: `proxy_cores`, `proxy_thread` and so on.
    pub fn report(&self, later: &Look, mut report: Report) -> Report {
        let elapsed = later.at.duration_since(self.at).as_secs_f64();
        for (before, after) in self.processes.iter().zip(&later.processes) {
            let (whole, busiest) = after.since(before);
            report = report
                .precise(&format!("{}_cores", after.name), whole / elapsed)
                .precise(&format!("{}_thread", after.name), busiest / elapsed);
        }
        report
    }
}

/// The processor time of each thread of a process, by its id.
fn threads(pid: u64) -> Result<HashMap<u64, Duration>, String> {
    let failed = |error: std::io::Error| format!("--watch {pid}: {error}");
    let mut found = HashMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task")).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        match fs::read_to_string(entry.path().join("schedstat")) {
            Ok(text) => found.insert(id, on_processor(&text).ok_or(format!("got schedstat {text:?}"))?),
            Err(error) if gone(&error) => continue,
            Err(error) => return Err(failed(error)),
        };
    }
    Ok(found)
}

/// Whether a thread has ended between the listing and the look; the kernel says so in two ways.
fn gone(error: &std::io::Error) -> bool {
    const ESRCH: i32 = 3;
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(ESRCH)
}

/// The first of three numbers: nanoseconds on a processor.
fn on_processor(schedstat: &str) -> Option<Duration> {
    schedstat.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn had(whole: u64, threads: &[(u64, u64)]) -> Had {
        let threads = threads.iter().map(|(id, millis)| (*id, Duration::from_millis(*millis))).collect();
        Had { name: "proxy".to_owned(), whole: Duration::from_millis(whole), threads }
    }

    #[test]
    fn the_busiest_thread_is_the_one_that_had_most_since_the_first_look() {
        let before = had(9_000, &[(1, 8_000), (2, 500)]);
        let after = had(11_000, &[(1, 8_400), (2, 1_700), (3, 400)]);
        assert_eq!(after.since(&before), (2.0, 1.2));
    }

    #[test]
    fn cores_are_processor_time_by_the_time_between_the_looks() {
        let at = Instant::now();
        let first = Look { at, processes: vec![had(1_000, &[(1, 1_000)])] };
        let later =
            Look { at: at + Duration::from_secs(4), processes: vec![had(4_000, &[(1, 2_500), (2, 1_500)])] };
        let report = first.report(&later, Report::default()).json();
        assert_eq!(report, "{\"proxy_cores\": 0.750000, \"proxy_thread\": 0.375000}");
    }

    #[test]
    fn this_process_is_watched_and_its_work_is_seen() {
        let words = ["--watch".to_owned(), format!("again={}", process::id())];
        let watched = Watched::from(&Args::parse(words.into_iter(), &["watch"]).unwrap()).unwrap();
        let before = watched.look().unwrap();
        let worker = std::thread::spawn(|| {
            let own = || sys::cpu_time(u64::from(process::id())).unwrap();
            let begun = own();
            while own() - begun < Duration::from_millis(30) {}
        });
        worker.join().unwrap();
        let after = watched.look().unwrap();
        let names: Vec<&str> = after.processes.iter().map(|had| had.name.as_str()).collect();
        assert_eq!(names, ["again", "load"]);
        assert!(after.processes.iter().zip(&before.processes).all(|(now, then)| now.since(then).0 >= 0.03));
    }

    #[test]
    fn a_list_of_processes_that_is_none_is_refused() {
        for text in ["proxy", "proxy=", "proxy=x", "=,"] {
            let words = ["--watch".to_owned(), text.to_owned()];
            let args = Args::parse(words.into_iter(), &["watch"]).unwrap();
            assert!(Watched::from(&args).is_err(), "{text}");
        }
    }
}
