//! Thousands of clients connect at once, shake hands and want to be CONNECTED; nobody is left out, and those who are
//! connected already must not notice. One thread: these clients are cheap beside any server.

use std::io::{self, ErrorKind, Write};
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::link::Link;
use crate::session::{Reader, Target};
use crate::stats::{self, Latencies, PeakSampler, Report};
use crate::sys::{self, Epoll, Event};
use crate::wire;
use crate::witnesses::Witnesses;

const READ_BYTES: usize = 64 * 1024;
const LIMIT_SECONDS: f64 = 60.0;
/// After the last one is served, for what its arrival set in motion.
const SETTLE: Duration = Duration::from_millis(500);

/// A client on its way in.
struct Newcomer {
    reader: Reader,
    begun: Instant,
    asked: bool,
    interest: u32,
}

#[derive(Default)]
struct Tally {
    connected: u64,
    refused: u64,
    refusal: String,
    latencies: Latencies,
}

enum Step {
    Waiting,
    Connected,
    Refused(String),
}

/// All connect at t = 0; watches the memory of `--pid` and, with `--pings`, what others wait.
pub fn run(args: &Args, target: &Target) -> Result<(), String> {
    let pid = args.number("pid", 0)?;
    let idle = stats::settled(pid)?;
    let sampler = PeakSampler::start(pid);
    let witnesses = Witnesses::call(args, target)?;
    let (count, limit) = (args.number("connections", 5000)?, args.seconds("limit", LIMIT_SECONDS)?);
    let start = Instant::now();
    let (mut tally, _held) = storm(target, count, limit).map_err(|error| error.to_string())?;
    let elapsed = start.elapsed().as_secs_f64();
    std::thread::sleep(SETTLE);
    let report = Report::default()
        .count("answered", tally.connected)
        .count("refused", tally.refused)
        .text("refusal", &tally.refusal)
        .count("lost", count - tally.connected - tally.refused)
        .number("seconds_to_end", elapsed)
        .number("per_second", tally.connected as f64 / elapsed)
        .count("idle_rss_bytes", idle)
        .count("peak_rss_bytes", sampler.peak())
        .latencies(&mut tally.latencies);
    witnesses.report(report)?.print();
    Ok(())
}

/// Returns the connections too: nobody leaves before the end.
fn storm(target: &Target, count: u64, limit: Duration) -> io::Result<(Tally, Vec<Option<Newcomer>>)> {
    let epoll = Epoll::new()?;
    let mut newcomers = Vec::new();
    for index in 0..count {
        let newcomer = Newcomer::new(target.link(sys::connect_later(target.address)?)?)?;
        epoll.add(&newcomer.reader.stream, newcomer.interest, index)?;
        newcomers.push(Some(newcomer));
    }
    let (mut tally, mut left) = (Tally::default(), count);
    let (mut buffer, mut events) = (vec![0u8; READ_BYTES], [Event::default(); 256]);
    let deadline = Instant::now() + limit;
    while left > 0 && Instant::now() < deadline {
        let ready = epoll.wait(&mut events, 50)?;
        for event in events.iter().take(ready).copied() {
            let slot = &mut newcomers[event.token as usize];
            let Some(newcomer) = slot.as_mut().filter(|newcomer| newcomer.interest != 0) else { continue };
            let before = newcomer.interest;
            let step = newcomer.step(target, &mut buffer);
            let step = step.unwrap_or_else(|error| Step::Refused(error.to_string()));
            if !matches!(step, Step::Waiting) {
                newcomer.interest = 0; // served: what else comes is not looked at
                left -= 1;
            }
            if newcomer.interest != before {
                epoll.modify(&newcomer.reader.stream, newcomer.interest, event.token)?;
            }
            if tally.take(step, newcomer.begun) {
                *slot = None;
            }
        }
    }
    Ok((tally, newcomers))
}

impl Tally {
    /// Tells whether the client was refused, and has nothing to stay for.
    fn take(&mut self, step: Step, begun: Instant) -> bool {
        let refused = matches!(step, Step::Refused(_));
        match step {
            Step::Waiting => {}
            Step::Connected => {
                self.connected += 1;
                self.latencies.add(begun.elapsed());
            }
            Step::Refused(why) => {
                self.refused += 1;
                if self.refusal.is_empty() {
                    self.refusal = why;
                }
            }
        }
        refused
    }
}

impl Newcomer {
    fn new(link: Link) -> io::Result<Newcomer> {
        Ok(Newcomer {
            reader: Reader::new(link)?,
            begun: Instant::now(),
            asked: false,
            interest: sys::IN | sys::OUT,
        })
    }

    fn step(&mut self, target: &Target, buffer: &mut [u8]) -> io::Result<Step> {
        if !self.asked {
            if !self.reader.stream.shake()? {
                self.interest = if self.reader.stream.unsent() { sys::IN | sys::OUT } else { sys::IN };
                return Ok(Step::Waiting);
            }
            match self.reader.stream.write_all(&target.connect()) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Step::Waiting),
                other => other?,
            }
            self.asked = true;
            self.interest = sys::IN;
        }
        self.answer(buffer)
    }

    fn answer(&mut self, buffer: &mut [u8]) -> io::Result<Step> {
        let count = self.reader.read(buffer)?;
        let mut data = &buffer[..count];
        let Some(frame) = self.reader.scanner.next(&mut data) else { return Ok(Step::Waiting) };
        match frame.command() {
            Some((wire::CONNECTED, _)) => Ok(Step::Connected),
            other => Ok(Step::Refused(format!("got {:?}, expected CONNECTED", other.map(|(kind, _)| kind)))),
        }
    }
}
