//! Thousands of requests that wait for memory, and whose clients all leave at once: how long until nobody of them
//! stands in the queue, and how long a small client waits meanwhile. The memory is held by clients that never read.

use std::net::SocketAddrV4;
use std::thread;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::asker::Asker;
use crate::exposition;
use crate::lists::{clients, Spread, Storm};
use crate::ping::Pinger;
use crate::session::Target;
use crate::stats::Report;
use crate::topics::Names;

/// More than the memory of the scenario has room for, and their own sockets, with lists of 1 MB.
const HOLDERS: u64 = 400;
const HOLDER_RECEIVE_BYTES: i32 = 4096;
const POLL: Duration = Duration::from_millis(5);
const SETTLE: Duration = Duration::from_secs(2);
const QUEUE_LIMIT: Duration = Duration::from_secs(15);
const QUEUES: [&str; 2] =
    ["pulsar_proxy_topic_list_heap_queue_size", "pulsar_proxy_topic_list_direct_queue_size"];

pub fn run(args: &Args, target: &Target) -> Result<(), String> {
    let metrics = args.loopback("metrics")?.ok_or("got no --metrics, expected 127.0.0.1:PORT")?;
    let broker = args.loopback("broker")?.ok_or("got no --broker, expected 127.0.0.1:PORT")?;
    let names = Names::from(args)?;
    let slow = Target { receive_buffer_bytes: Some(HOLDER_RECEIVE_BYTES), ..target.clone() };
    let _held = asked(&slow, HOLDERS, 1, &names, "holder")?;
    thread::sleep(SETTLE);
    let before = exposition::sum(metrics, &QUEUES)?;
    let (connections, depth) = (args.number("connections", 5000)?, args.number("depth", 2)?);
    let crowd = asked(target, connections, depth as usize, &names, "crowd")?;
    let waiting = queue_until(metrics, QUEUE_LIMIT, |now| now >= before + connections * depth)?;
    thread::sleep(SETTLE);
    let asked_before = questions(broker)?;
    let pinger = Pinger::start(target)?;
    let start = Instant::now();
    drop(crowd);
    let closing = start.elapsed();
    let left = queue_until(metrics, QUEUE_LIMIT, |now| now <= before)?;
    let emptied = start.elapsed();
    thread::sleep(SETTLE / 4);
    let report = Report::default()
        .count("queued", waiting.saturating_sub(before))
        .count("left_over", left.saturating_sub(before))
        .number("closing_ms", closing.as_secs_f64() * 1000.0)
        .number("emptied_ms", emptied.as_secs_f64() * 1000.0)
        .count("asked_for_nobody", questions(broker)? - asked_before);
    pinger.stop()?.report("ping", report).print();
    Ok(())
}

/// Connections that have asked for lists of namespaces of their own and do not read.
fn asked(target: &Target, count: u64, depth: usize, names: &Names, tenant: &str) -> Result<Storm, String> {
    let mut storm = Storm::new(clients(target.open_many(count)?, names, tenant, Spread::PerRequest)?, depth)?;
    storm.ask_all();
    Ok(storm)
}

fn questions(broker: SocketAddrV4) -> Result<u64, String> {
    Ok(Asker::open(broker)?.counters().map_err(|error| error.to_string())?.0)
}

/// Look at the queues until `enough` or the limit; returns how many waited at the last look.
fn queue_until(metrics: SocketAddrV4, limit: Duration, enough: impl Fn(u64) -> bool) -> Result<u64, String> {
    let deadline = Instant::now() + limit;
    loop {
        let now = exposition::sum(metrics, &QUEUES)?;
        if enough(now) || Instant::now() > deadline {
            return Ok(now);
        }
        thread::sleep(POLL);
    }
}
