//! A small client that does nothing but PING every 20 ms, in a thread of its own: what it waits is what everybody
//! waits whose own request is none of the storm. A PING that is due while the last PONG is missing is counted from
//! when it was due, so that one long stall is not a single sample; waking late is the machine's fault and is not
//! counted.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::link::Link;
use crate::session::{self, Target};
use crate::stats::{Latencies, Report};
use crate::wire::{self, Message};

const EVERY: Duration = Duration::from_millis(20);

pub struct Pinger {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Pings>,
}

#[derive(Default)]
pub struct Pings {
    latencies: Latencies,
    lost: u64,
}

impl Pinger {
    /// Open a lookup connection and PING until stopped.
    pub fn start(target: &Target) -> Result<Pinger, String> {
        let lookup = Target { via: None, receive_buffer_bytes: None, ..target.clone() };
        let stream = lookup.open().map_err(|error| format!("ping {}: {error}", target.address))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        Ok(Pinger { stop, thread: thread::spawn(move || ping(stream, &stopped)) })
    }

    pub fn stop(self) -> Result<Pings, String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "a ping thread panicked".to_owned())
    }
}

impl Pings {
    /// `<of>_p50_ms` and so on, and `<of>_lost`: whether the connection broke.
    pub fn report(mut self, of: &str, report: Report) -> Report {
        report.named_latencies(of, &mut self.latencies).count(&format!("{of}_lost"), self.lost)
    }
}

fn ping(mut stream: Link, stopped: &AtomicBool) -> Pings {
    let mut pings = Pings::default();
    let mut due = Instant::now();
    while !stopped.load(Ordering::Relaxed) {
        let sent_late = Instant::now() > due;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let begun = if sent_late { due } else { Instant::now() };
        if pong(&mut stream).is_err() {
            pings.lost += 1;
            break;
        }
        pings.latencies.add(begun.elapsed());
        due += EVERY;
    }
    pings
}

fn pong(stream: &mut Link) -> io::Result<()> {
    stream.write_all(&wire::frame(wire::PING, &Message::new()))?;
    loop {
        let frame = session::read_frame(stream)?;
        match session::parse(&frame)?.0 {
            wire::PONG => return Ok(()),
            wire::PING => stream.write_all(&wire::frame(wire::PONG, &Message::new()))?,
            _ => {}
        }
    }
}
