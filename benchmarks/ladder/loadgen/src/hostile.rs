//! Hostile neighbours: attackers flood the server in one way, each at a stated rate at most, while small honest
//! clients PING, look topics up and list. What the honest ones wait and lose is the result; a PING to a broker that
//! nobody else uses is the floor. At the end the server's permits must be back at zero. The honest ones come from
//! another address than the attackers if `--neighbours-from` names one.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::asker::{self, Answer, Asker};
use crate::exposition;
use crate::link::Link;
use crate::memory_floods;
use crate::session::Target;
use crate::stats::{self, Latencies, PeakSampler, Report};
use crate::topics::Names;
use crate::web_floods;
use crate::wire::{self, Message};
use crate::witnesses::Witnesses;

const USED: [&str; 2] =
    ["pulsar_proxy_topic_list_heap_memory_used_bytes", "pulsar_proxy_topic_list_direct_memory_used_bytes"];
const LOOKUP_EVERY: Duration = Duration::from_millis(20);
const LIST_EVERY: Duration = Duration::from_millis(200);
/// What the neighbours list.
pub const NEIGHBOURS_NAMESPACE: &str = "bench/ns-00000";
const SETTLE_LIMIT: Duration = Duration::from_secs(15);
pub const TICK: Duration = Duration::from_millis(1);
/// A server that ends an attacker's connection is asked for another, not in a busy loop.
const REOPEN: Duration = Duration::from_millis(10);
/// The same for those of an attacker's connections that were ended while others go on.
pub const COME_BACK: Duration = Duration::from_millis(50);
pub const CHUNK_BYTES: usize = 16 * 1024;
const MIB: usize = 1024 * 1024;
const METADATA_LIMIT: u64 = 65;

type Frames = fn() -> Vec<u8>;
type Attack = fn(&Stage, &Watch) -> io::Result<u64>;

/// What all attackers know.
pub struct Stage {
    pub target: Target,
    /// The broker that relays are asked for.
    pub broker: Option<SocketAddrV4>,
    pub web: Option<SocketAddrV4>,
    /// Bytes a second of each attacker.
    pub rate: u64,
    pub attackers: u64,
}

/// Bytes that may be sent by now, and whether to go on.
pub struct Watch {
    pub begun: Instant,
    stop: Arc<AtomicBool>,
}

impl Watch {
    pub fn over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Sleep until so many bytes are within the rate; at most one tick.
    pub fn pace(&self, rate: u64, spent: u64) -> bool {
        let allowed = (self.begun.elapsed().as_secs_f64() * rate as f64) as u64;
        if spent <= allowed {
            return true;
        }
        thread::sleep(TICK);
        false
    }
}

fn attack_named(name: &str) -> Option<Attack> {
    Some(match name {
        "pong" => |stage, watch| pour(stage, watch, || wire::frame(wire::PONG, &Message::new())),
        "ping" => |stage, watch| pour(stage, watch, || wire::frame(wire::PING, &Message::new())),
        "flow" => |stage, watch| pour(stage, watch, flow),
        "lookup" => |stage, watch| pour(stage, watch, || asker::lookup(1, "persistent://bench/ns/topic")),
        "lookup-properties" => |stage, watch| pour(stage, watch, crowded_lookup),
        "oversize-properties" => |stage, watch| pour(stage, watch, empty_properties),
        "announced" => |stage, watch| announce(stage, watch, 34, &Announced::schema(200, 0)),
        "announced-connects" => |stage, watch| announce(stage, watch, 55, &Announced::connect()),
        "dripping-frames" => |stage, watch| announce(stage, watch, 34, &Announced::schema(200_000, 4)),
        "relayed-pongs" => relayed,
        "metrics" => |stage, watch| web_floods::pages(stage, watch, "/metrics"),
        "tiny-requests" => |stage, watch| web_floods::pages(stage, watch, "/x"),
        "tiny-chunks" => web_floods::tiny_chunks,
        "aborted-uploads" => web_floods::aborted_uploads,
        "dripping-uploads" => web_floods::dripping_uploads,
        "pipelines" => memory_floods::pipelines,
        "large-lookups" => memory_floods::large_lookups,
        "standing-pairs" => memory_floods::standing_pairs,
        "schemas" => memory_floods::schemas,
        "slow-readers" => memory_floods::slow_readers,
        "leaving-clients" => memory_floods::leaving_clients,
        "silent-addresses" => memory_floods::silent_addresses,
        "slow-joiners" => memory_floods::slow_joiners,
        "dripping-relays" => dripping_relays,
        "stopped-relays" => stopped_relays,
        _ => return None,
    })
}

/// Flood for `--seconds` by `--attackers`; report what honest clients waited meanwhile.
pub fn run(args: &Args, target: &Target) -> Result<(), String> {
    let name = args.text("flood", "");
    let attack = attack_named(&name).ok_or(format!("--flood: got {name:?}, expected the name of a flood"))?;
    let metrics = args.loopback("metrics")?.ok_or("got no --metrics, expected 127.0.0.1:PORT")?;
    let (pid, names) = (args.number("pid", 0)?, Names::from(args)?);
    let attackers = args.number("attackers", 1)?;
    let stage = Arc::new(Stage {
        target: target.clone(),
        broker: args.loopback("broker")?,
        web: args.loopback("web")?,
        rate: args.number("rate", 4_000_000)?,
        attackers,
    });
    let honest = Target { source: args.source("neighbours-from")?, ..target.clone() };
    await_web(metrics)?;
    let idle = stats::settled(pid)?;
    let sampler = PeakSampler::start(pid);
    let witnesses = Witnesses::call(args, &honest)?;
    let stop = Arc::new(AtomicBool::new(false));
    let neighbours = Neighbours::start(&honest, &names, args.switch("newcomers"), &stop)?;
    let threads: Vec<_> = (0..attackers).map(|_| attacker(attack, &stage, &stop)).collect();
    thread::sleep(args.seconds("seconds", 10.0)?);
    let peak = sampler.peak();
    let witnessed = witnesses.report(Report::default())?;
    stop.store(true, Ordering::Relaxed);
    let mut report = neighbours.report(witnessed)?;
    let mut sent = 0;
    for thread in threads {
        sent += thread.join().map_err(|_| "an attacker panicked".to_owned())?;
    }
    report = report
        .count("flood_bytes", sent)
        .count("idle_rss_bytes", idle)
        .count("peak_rss_bytes", peak)
        .count("grown_bytes", peak.saturating_sub(idle))
        .count("held_at_end", held_at_end(metrics)?);
    report.print();
    Ok(())
}

/// Wait for the server's web port, which a busy machine opens seconds after the other: floods of it would begin later
/// than those who look on, and what it takes to open would count as grown.
fn await_web(metrics: SocketAddrV4) -> Result<(), String> {
    let deadline = Instant::now() + SETTLE_LIMIT;
    while let Err(error) = exposition::sum(metrics, &USED) {
        if Instant::now() > deadline {
            return Err(error);
        }
        thread::sleep(50 * TICK);
    }
    Ok(())
}

/// The bytes that permits hold once everybody has left: 0 at once, or what is left when the limit is reached.
fn held_at_end(metrics: SocketAddrV4) -> Result<u64, String> {
    let deadline = Instant::now() + SETTLE_LIMIT;
    loop {
        let held = exposition::sum(metrics, &USED)?;
        if held == 0 || Instant::now() > deadline {
            return Ok(held);
        }
        thread::sleep(50 * TICK);
    }
}

fn attacker(attack: Attack, stage: &Arc<Stage>, stop: &Arc<AtomicBool>) -> JoinHandle<u64> {
    let (stage, watch) = (Arc::clone(stage), Watch { begun: Instant::now(), stop: Arc::clone(stop) });
    thread::spawn(move || {
        let mut sent = 0;
        while !watch.over() {
            // A connection that the server ended or refused is what an attacker expects.
            sent += attack(&stage, &watch).unwrap_or(0);
            thread::sleep(REOPEN);
        }
        sent
    })
}

/// Honest clients beside the flood: one looks up, one lists, and for `--newcomers` one comes anew for each list. PINGs
/// are the witnesses'.
struct Neighbours {
    lookups: JoinHandle<Found>,
    lists: JoinHandle<Found>,
    newcomers: Option<JoinHandle<Found>>,
}

#[derive(Default)]
struct Found {
    latencies: Latencies,
    refused: u64,
    wrong: u64,
    lost: u64,
}

impl Neighbours {
    fn start(
        target: &Target,
        names: &Names,
        newcomers: bool,
        stop: &Arc<AtomicBool>,
    ) -> Result<Neighbours, String> {
        let least = names.least_bytes();
        let (mut looking, mut listing) = (Asker::of(target)?, Asker::of(target)?);
        let look = move || looking.lookup("persistent://bench/here/topic");
        let list = move || listing.list(NEIGHBOURS_NAMESPACE, least);
        let target = target.clone();
        let come = move || Asker::of(&target).map_err(io::Error::other)?.list(NEIGHBOURS_NAMESPACE, least);
        Ok(Neighbours {
            lookups: neighbour(LOOKUP_EVERY, Arc::clone(stop), look),
            lists: neighbour(LIST_EVERY, Arc::clone(stop), list),
            newcomers: newcomers.then(|| neighbour(LIST_EVERY, Arc::clone(stop), come)),
        })
    }

    fn report(self, mut report: Report) -> Result<Report, String> {
        let (mut refused, mut wrong, mut lost) = (0, 0, 0);
        let all = [("lookup", Some(self.lookups)), ("list", Some(self.lists)), ("newcomer", self.newcomers)];
        for (name, thread) in all.into_iter().filter_map(|(name, thread)| Some((name, thread?))) {
            let mut found = thread.join().map_err(|_| "a neighbour panicked".to_owned())?;
            report = report.named_latencies(name, &mut found.latencies);
            (refused, wrong, lost) = (refused + found.refused, wrong + found.wrong, lost + found.lost);
        }
        Ok(report.count("refused", refused).count("wrong", wrong).count("lost", lost))
    }
}

fn neighbour(
    every: Duration,
    stop: Arc<AtomicBool>,
    mut ask: impl FnMut() -> io::Result<Answer> + Send + 'static,
) -> JoinHandle<Found> {
    thread::spawn(move || {
        let mut found = Found::default();
        while !stop.load(Ordering::Relaxed) {
            let begun = Instant::now();
            match ask() {
                Ok(Answer::Right) => found.latencies.add(begun.elapsed()),
                Ok(Answer::Wrong) => found.wrong += 1,
                Ok(Answer::Refused) => found.refused += 1,
                Err(_) => {
                    found.lost += 1;
                    break;
                }
            }
            thread::sleep(every.saturating_sub(begun.elapsed()));
        }
        found
    })
}

fn flow() -> Vec<u8> {
    wire::frame(wire::FLOW, &Message::new().varint(1, 1).varint(2, 1000))
}

/// A LOOKUP with more properties than are served.
fn crowded_lookup() -> Vec<u8> {
    let property = Message::new().text(1, "k").text(2, "v");
    let start = Message::new().text(1, "persistent://bench/ns/topic").varint(2, 1).varint(3, 0);
    wire::frame(wire::LOOKUP, &(0..METADATA_LIMIT).fold(start, |message, _| message.bytes(7, &property.0)))
}

/// A GET_OR_CREATE_SCHEMA of nearly 1 MiB that is nothing but empty properties.
fn empty_properties() -> Vec<u8> {
    const GET_OR_CREATE_SCHEMA: u64 = 39;
    let properties = [5 << 3 | 2, 0].repeat((MIB - 256) / 2);
    let schema = Message::new().text(1, "s").bytes(3, b"{}").varint(4, 0);
    let schema = Message([schema.0, properties].concat());
    let request = Message::new().varint(1, 1).text(2, "persistent://bench/ns/topic").bytes(3, &schema.0);
    wire::frame(GET_OR_CREATE_SCHEMA, &request)
}

/// A GET_OR_CREATE_SCHEMA of nearly 1 MiB whose first bytes are those of any large schema.
fn large_schema() -> Vec<u8> {
    const GET_OR_CREATE_SCHEMA: u64 = 39;
    let schema = Message::new().text(1, "s").bytes(3, &vec![b'x'; MIB - 4096]).varint(4, 0);
    let request = Message::new().varint(1, 1).text(2, "persistent://bench/ns/topic").bytes(3, &schema.0);
    wire::frame(GET_OR_CREATE_SCHEMA, &request)
}

/// Send one frame again and again, within the rate, and discard what is answered.
fn pour(stage: &Stage, watch: &Watch, frame: Frames) -> io::Result<u64> {
    let frame = frame();
    let chunk = frame.repeat((CHUNK_BYTES / frame.len()).max(1));
    let mut link = stage.target.open()?;
    link.set_nonblocking(true)?;
    flood(&mut [link], &chunk, stage.rate, watch)
}

/// Write the chunk to all connections in turns until told to stop or a connection ends; return the bytes sent.
pub fn flood(links: &mut [Link], chunk: &[u8], rate: u64, watch: &Watch) -> io::Result<u64> {
    let (mut positions, mut answers, mut sent) = (vec![0; links.len()], vec![0u8; 65536], 0);
    let begun = Watch { begun: Instant::now(), stop: Arc::clone(&watch.stop) };
    while !begun.over() {
        let mut idle = true;
        for (link, position) in links.iter_mut().zip(&mut positions) {
            if begun.pace(rate, sent) {
                match link.write(&chunk[*position..]) {
                    Ok(count) => {
                        (idle, sent) = (false, sent + count as u64);
                        *position = (*position + count) % chunk.len();
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return Ok(sent),
                }
            }
            if !discard(link, &mut answers) {
                return Ok(sent);
            }
        }
        if idle {
            thread::sleep(TICK);
        }
    }
    Ok(sent)
}

/// Read what is there; tells whether the connection goes on.
pub fn discard(link: &mut Link, buffer: &mut [u8]) -> bool {
    match link.read(buffer) {
        Ok(count) => count > 0,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

/// A large frame that never ends: how much of it comes at once, and how much each half second after that.
struct Announced {
    frame: Vec<u8>,
    at_once: usize,
    drip: usize,
    connected: bool,
}

impl Announced {
    /// 1 MiB after CONNECT.
    fn schema(at_once: usize, drip: usize) -> Announced {
        Announced { frame: large_schema(), at_once, drip, connected: true }
    }

    /// The first 200 bytes of a CONNECT of 64 KiB.
    fn connect() -> Announced {
        Announced { frame: announced_connect(), at_once: 200, drip: 0, connected: false }
    }

    fn begin(&self, target: &Target) -> io::Result<Link> {
        let mut link = match self.connected {
            true => target.open()?,
            false => Link::from(TcpStream::connect(target.address)?),
        };
        link.set_nonblocking(true)?;
        // A server that does not read that much has a reason.
        let _ = link.write(&self.frame[..self.at_once]);
        Ok(link)
    }

    /// Send the next drops; all bytes of the rest are equal.
    fn go_on(&self, link: &mut Link) -> io::Result<usize> {
        link.write(&self.frame[self.at_once..][..self.drip])
    }
}

/// Connections that send a part of a large frame and then next to nothing; who is closed comes back.
fn announce(stage: &Stage, watch: &Watch, count: usize, announced: &Announced) -> io::Result<u64> {
    let mut held: Vec<Option<Link>> = (0..count).map(|_| None).collect();
    let (mut sent, mut buffer, mut turn) = (0, vec![0u8; 4096], 0);
    while !watch.over() {
        for place in &mut held {
            if let Some(link) = place {
                if discard(link, &mut buffer) {
                    let due = announced.drip > 0 && turn % 10 == 0;
                    sent += if due { announced.go_on(link).unwrap_or(0) as u64 } else { 0 };
                    continue;
                }
            }
            *place = None;
            // A server that accepts nobody else is what an attacker wants.
            let Ok(link) = announced.begin(&stage.target) else { continue };
            sent += announced.at_once as u64;
            *place = Some(link);
        }
        turn += 1;
        thread::sleep(50 * TICK);
    }
    Ok(sent)
}

fn announced_connect() -> Vec<u8> {
    let connect = Message::new().text(1, "flood").varint(4, wire::PROTOCOL_VERSION);
    wire::frame(wire::CONNECT, &connect.bytes(3, &[b'x'; 65_000]))
}

/// Five relays whose broker sends the smallest frames without end; read within the rate.
fn relayed(stage: &Stage, watch: &Watch) -> io::Result<u64> {
    let broker = stage.broker.ok_or(io::Error::other("got no --broker, expected 127.0.0.1:PORT"))?;
    let via = Target { via: Some(broker.to_string()), ..stage.target.clone() };
    let mut links = Vec::new();
    for _ in 0..5 {
        let mut link = via.open()?;
        link.write_all(&flow())?;
        link.set_nonblocking(true)?;
        links.push(link);
    }
    let (mut taken, mut buffer) = (0, vec![0u8; CHUNK_BYTES]);
    while !watch.over() {
        for link in &mut links {
            if watch.pace(stage.rate, taken) {
                match link.read(&mut buffer) {
                    Ok(0) => return Ok(taken),
                    Ok(count) => taken += count as u64,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(TICK / 10),
                    Err(_) => return Ok(taken),
                }
            }
        }
    }
    Ok(taken)
}

fn relays(stage: &Stage, count: usize) -> io::Result<Vec<Link>> {
    let broker = stage.broker.ok_or(io::Error::other("got no --broker, expected 127.0.0.1:PORT"))?;
    let via =
        Target { via: Some(broker.to_string()), receive_buffer_bytes: Some(8192), ..stage.target.clone() };
    (0..count).map(|_| via.open()).collect()
}

/// 200 relays that announce a SEND of 1 MiB and send a byte of it each half second.
fn dripping_relays(stage: &Stage, watch: &Watch) -> io::Result<u64> {
    let head = wire::head(wire::SEND, &Message::new().varint(1, 1).varint(2, 1), MIB);
    let (mut links, mut sent) = (relays(stage, 200)?, 0);
    for link in &mut links {
        link.write_all(&head)?;
        link.set_nonblocking(true)?;
    }
    while !watch.over() {
        for link in &mut links {
            // A relay that the server ended stays ended: the others go on.
            sent += link.write(b"x").unwrap_or(0) as u64;
        }
        thread::sleep(500 * TICK);
    }
    Ok(sent)
}

/// 50 relays whose broker sends without end, and that read nothing.
fn stopped_relays(stage: &Stage, watch: &Watch) -> io::Result<u64> {
    let mut links = relays(stage, 50)?;
    for link in &mut links {
        link.write_all(&flow())?;
    }
    while !watch.over() {
        thread::sleep(50 * TICK);
    }
    Ok(links.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flood_has_an_attack_and_other_names_have_none() {
        for name in ["pong", "tiny-chunks", "pipelines", "large-lookups", "standing-pairs"] {
            assert!(attack_named(name).is_some(), "{name}");
        }
        assert!(attack_named("rain").is_none());
    }

    #[test]
    fn the_frame_of_empty_properties_fits_the_proxy_s_largest() {
        assert!((MIB - 4096..MIB).contains(&empty_properties().len()));
    }

    #[test]
    fn a_dripping_frame_never_ends() {
        let announced = Announced::schema(200_000, 4);
        assert!(
            (MIB - 8192..MIB).contains(&announced.frame.len())
                && announced.at_once < announced.frame.len() / 2
        );
    }

    #[test]
    fn the_smallest_frame_has_13_bytes() {
        assert_eq!(wire::frame(wire::PONG, &Message::new()).len(), 13);
    }
}
