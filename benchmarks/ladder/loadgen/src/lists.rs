//! Topic lists: connections that ask and check what they get, and the closed loop over them. Every answer's request
//! id and size are checked; the first of each closed-loop connection in full.

use std::io;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::link::Link;
use crate::processor::Watched;
use crate::session::{self, Reader, Target};
use crate::stats::{Latencies, Report};
use crate::sys::{self, Epoll, Event};
use crate::topics::Names;
use crate::wire::{self, Fields, Message, Value};

const READ_BYTES: usize = 256 * 1024;
/// Ids of one varint length, so that all answers of a connection have one size.
const FIRST_REQUEST_ID: u64 = 1 << 20;
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
/// By so much an answer may differ from the names alone: ids, hash and lengths.
const ENVELOPE_BYTES: usize = 64;

/// What a connection has asked and how large a right answer is.
struct Awaiting {
    outstanding: Vec<(u64, Instant)>,
    least_bytes: usize,
    /// Size of a right answer on the wire; 0 until one is known.
    expected_bytes: usize,
}

pub struct Client {
    reader: Reader,
    namespace: String,
    awaiting: Awaiting,
    next_id: u64,
    pings: u32,
}

#[derive(Default)]
pub struct Tally {
    pub answered: u64,
    pub refused: u64,
    pub lost: u64,
    pub wrong: u64,
    pub bytes: u64,
    refusal: String,
    pub latencies: Latencies,
}

/// Whom a request asks about; equal requests are those of one namespace.
#[derive(Clone, Copy, PartialEq)]
pub enum Spread {
    OneNamespace,
    PerConnection,
}

impl Spread {
    pub fn from(args: &Args) -> Spread {
        if args.switch("one-namespace") {
            Spread::OneNamespace
        } else {
            Spread::PerConnection
        }
    }
}

pub struct Storm {
    epoll: Epoll,
    clients: Vec<Option<Client>>,
    pub tally: Tally,
    depth: usize,
    asking: bool,
}

/// C connections, each with P requests outstanding, for a time; prints rates, latencies, what went wrong, and the
/// processor time of those that are watched.
pub fn closed_loop(args: &Args, target: &Target) -> Result<(), String> {
    let names = Names::from(args)?;
    let streams = target.open_many(args.number("connections", 16)?)?;
    let clients = clients(streams, &names, "bench", Spread::from(args))?;
    let mut storm = Storm::new(clients, args.number("depth", 1)? as usize)?;
    storm.verify(&names)?;
    storm.register().map_err(|error| error.to_string())?;
    let (warmup, seconds) = (args.seconds("warmup", 0.5)?, args.seconds("seconds", 4.0)?);
    storm.ask_all();
    storm.read_until(Instant::now() + warmup).map_err(|error| error.to_string())?;
    storm.tally.restart();
    let watched = Watched::from(args)?;
    let (before, start) = (watched.look()?, Instant::now());
    storm.read_until(start + seconds).map_err(|error| error.to_string())?;
    let (elapsed, after) = (start.elapsed().as_secs_f64(), watched.look()?);
    let (answered, bytes) = (storm.tally.answered, storm.tally.bytes);
    let mut latencies = std::mem::take(&mut storm.tally.latencies);
    storm.drain(DRAIN_LIMIT).map_err(|error| error.to_string())?;
    let report = storm
        .tally
        .report()
        .number("per_second", answered as f64 / elapsed)
        .number("mb_per_second", bytes as f64 / elapsed / 1e6)
        .latencies(&mut latencies);
    before.report(&after, report).print();
    Ok(())
}

/// Connections as clients of a tenant; nothing is asked yet.
pub fn clients(
    streams: Vec<Link>,
    names: &Names,
    tenant: &str,
    spread: Spread,
) -> Result<Vec<Option<Client>>, String> {
    let build = |(index, stream): (usize, Link)| {
        let index = if spread == Spread::OneNamespace { 0 } else { index };
        let reader = Reader::new(stream).map_err(|error| error.to_string())?;
        Ok(Some(Client {
            reader,
            namespace: format!("{tenant}/ns-{index:05}"),
            awaiting: Awaiting {
                outstanding: Vec::new(),
                least_bytes: names.least_bytes(),
                expected_bytes: 0,
            },
            next_id: FIRST_REQUEST_ID,
            pings: 0,
        }))
    };
    streams.into_iter().enumerate().map(build).collect()
}

impl Tally {
    pub fn restart(&mut self) {
        self.answered = 0;
        self.bytes = 0;
        self.latencies.clear();
    }

    pub fn add(&mut self, other: Tally) {
        self.answered += other.answered;
        self.refused += other.refused;
        self.lost += other.lost;
        self.wrong += other.wrong;
        self.bytes += other.bytes;
        self.latencies.extend(other.latencies);
        if self.refusal.is_empty() {
            self.refusal = other.refusal;
        }
    }

    pub fn report(&self) -> Report {
        self.report_as("")
    }

    /// What went wrong, under names that begin with `of`.
    pub fn report_as(&self, of: &str) -> Report {
        Report::default()
            .count(&format!("{of}refused"), self.refused)
            .count(&format!("{of}lost"), self.lost)
            .count(&format!("{of}wrong"), self.wrong)
            .text(&format!("{of}refusal"), &self.refusal)
    }

    fn refuse(&mut self, message: &[u8]) {
        self.refused += 1;
        if self.refusal.is_empty() {
            let code = wire::number(message, 2).unwrap_or(0);
            let text = String::from_utf8_lossy(wire::bytes(message, 3).unwrap_or(b"")).into_owned();
            self.refusal = format!("{code}: {text}");
        }
    }
}

impl Awaiting {
    fn take(&mut self, message: &[u8], tally: &mut Tally) -> Option<Instant> {
        let id = wire::number(message, 1);
        let position = self.outstanding.iter().position(|(asked, _)| Some(*asked) == id);
        tally.wrong += u64::from(position.is_none());
        position.map(|position| self.outstanding.swap_remove(position).1)
    }

    fn answer(&mut self, message: &[u8], wire_bytes: usize, tally: &mut Tally) {
        let Some(asked_at) = self.take(message, tally) else { return };
        tally.answered += 1;
        tally.latencies.add(asked_at.elapsed());
        let plausible = self.least_bytes..self.least_bytes + ENVELOPE_BYTES;
        if self.expected_bytes == 0 && plausible.contains(&wire_bytes) {
            self.expected_bytes = wire_bytes;
        }
        tally.wrong += u64::from(wire_bytes != self.expected_bytes);
    }

    fn refuse(&mut self, message: &[u8], tally: &mut Tally) {
        if self.take(message, tally).is_some() {
            tally.refuse(message);
        }
    }
}

/// The frame that asks for a namespace's topics.
pub fn question(request_id: u64, namespace: &str) -> Vec<u8> {
    let message = Message::new().varint(1, request_id).text(2, namespace).varint(3, 0);
    wire::frame(wire::GET_TOPICS, &message)
}

impl Client {
    fn ask(&mut self, count: usize) -> io::Result<()> {
        let mut requests = Vec::new();
        let now = Instant::now();
        for _ in 0..count {
            requests.extend_from_slice(&question(self.next_id, &self.namespace));
            self.awaiting.outstanding.push((self.next_id, now));
            self.next_id += 1;
        }
        self.reader.send(&requests)
    }

    /// Ask once and look at every name of the answer; also tells the size of all later answers.
    fn verify(&mut self, names: &Names) -> io::Result<()> {
        self.reader.stream.set_nonblocking(false)?;
        self.ask(1)?;
        let answer = session::read_frame(&mut self.reader.stream)?;
        let (kind, message) = session::parse(&answer)?;
        let is_name =
            |field: &(u64, Value)| matches!(field, (2, Value::Bytes(name)) if name.len() == names.bytes);
        let (id, count) = (wire::number(message, 1), Fields(message).filter(is_name).count());
        if (kind, id, count) != (wire::GET_TOPICS_RESPONSE, Some(FIRST_REQUEST_ID), names.count) {
            let got =
                format!("got command {kind}, request id {id:?}, {count} names of {} bytes", names.bytes);
            return Err(io::Error::other(format!("first answer: {got}, expected {} names", names.count)));
        }
        self.awaiting.expected_bytes = answer.len();
        self.awaiting.outstanding.clear();
        self.reader.stream.set_nonblocking(true)
    }
}

impl Storm {
    pub fn new(clients: Vec<Option<Client>>, depth: usize) -> Result<Storm, String> {
        let epoll = Epoll::new().map_err(|error| error.to_string())?;
        Ok(Storm { epoll, clients, tally: Tally::default(), depth, asking: true })
    }

    fn verify(&mut self, names: &Names) -> Result<(), String> {
        let all = self.clients.iter_mut().flatten();
        all.enumerate().try_for_each(|(index, client)| {
            client.verify(names).map_err(|error| format!("connection {index}: {error}"))
        })
    }

    pub fn register(&self) -> io::Result<()> {
        let all = self.clients.iter().enumerate();
        all.flat_map(|(index, client)| client.as_ref().map(|client| (index, client)))
            .try_for_each(|(index, client)| self.epoll.add(&client.reader.stream, sys::IN, index as u64))
    }

    pub fn ask_all(&mut self) {
        for index in 0..self.clients.len() {
            let depth = self.depth;
            let asked = self.clients[index].as_mut().map_or(Ok(()), |client| client.ask(depth));
            if asked.is_err() {
                self.lose(index);
            }
        }
    }

    fn outstanding(&self) -> usize {
        self.clients.iter().flatten().map(|client| client.awaiting.outstanding.len()).sum()
    }

    pub fn read_until(&mut self, deadline: Instant) -> io::Result<()> {
        let mut buffer = vec![0u8; READ_BYTES];
        let mut events = [Event::default(); 256];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || (!self.asking && self.outstanding() == 0) {
                return Ok(());
            }
            let count = self.epoll.wait(&mut events, left.as_millis().clamp(1, 50) as i32)?;
            for event in events.iter().take(count).copied() {
                if self.serve(event.token as usize, &mut buffer).is_err() {
                    self.lose(event.token as usize);
                }
            }
        }
    }

    /// Take the answers that are still to come without asking for more; the clients stay.
    pub fn finish(&mut self, limit: Duration) -> io::Result<()> {
        self.asking = false;
        self.read_until(Instant::now() + limit)
    }

    /// What was found, and the connections of the clients that are left.
    pub fn into_links(self) -> (Tally, Vec<Link>) {
        (self.tally, self.clients.into_iter().flatten().map(|client| client.reader.stream).collect())
    }

    /// Take the answers that are still to come without asking for more; what never comes is lost.
    pub fn drain(&mut self, limit: Duration) -> io::Result<()> {
        self.finish(limit)?;
        (0..self.clients.len()).for_each(|index| self.lose(index));
        Ok(())
    }

    fn lose(&mut self, index: usize) {
        if let Some(client) = self.clients[index].take() {
            self.tally.lost += client.awaiting.outstanding.len() as u64;
        }
    }

    fn serve(&mut self, index: usize, buffer: &mut [u8]) -> io::Result<()> {
        let Some(client) = self.clients[index].as_mut() else { return Ok(()) };
        let count = client.reader.read(buffer)?;
        self.tally.bytes += count as u64;
        let mut data = &buffer[..count];
        let before = client.awaiting.outstanding.len();
        while let Some(frame) = client.reader.scanner.next(&mut data) {
            let (kind, message) = frame.command().ok_or(io::Error::other("a frame is no command"))?;
            match kind {
                wire::GET_TOPICS_RESPONSE => {
                    client.awaiting.answer(message, frame.wire_bytes, &mut self.tally)
                }
                wire::ERROR => client.awaiting.refuse(message, &mut self.tally),
                wire::PING => client.pings += 1,
                _ => {}
            }
        }
        let ended = before - client.awaiting.outstanding.len();
        for _ in 0..std::mem::take(&mut client.pings) {
            client.reader.pong()?;
        }
        if self.asking && ended > 0 {
            client.ask(ended)?;
        }
        Ok(())
    }
}
