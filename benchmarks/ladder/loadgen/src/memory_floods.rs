//! Floods that fill the server's memory: for commands of clients, for topic lists, for answers that nobody reads.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::asker;
use crate::broker::UNHURRIED;
use crate::hostile::{Stage, Watch, CHUNK_BYTES, COME_BACK, NEIGHBOURS_NAMESPACE, TICK};
use crate::link::Link;
use crate::lists;
use crate::session::{self, Reader, Target};
use crate::wire::{self, Message};

/// Lookups of a pipeline, and pipelines of an attacker: 40 MB of commands at once, and the server's limit is 32 MiB.
const LOOKUPS: u64 = 1000;
const PIPELINES: usize = 10;
/// Of a topic's name; with it the frame stays below 4 KiB.
const NAME_BYTES: usize = 3994;
/// Of an attacker: two lists of 1 MB each are what half the server's memory for lists holds.
const STANDING: usize = 50;
/// Clients of an attacker that leave at once, with lists under way, as after a fault of a network; and how soon.
const LEAVING: u64 = 120;
const LEAVE_AFTER: Duration = Duration::from_millis(600);
/// Readers of an attacker that are slow and say that they read: bytes that each takes at a time, and how often.
const DRAWLING: usize = 60;
const DRAWN_BYTES: usize = 1700;
const DRAW_EVERY: Duration = Duration::from_millis(50);
const PONG_EVERY: u32 = 6;
/// Clients of one attacker each, at addresses in /24 networks of their own.
const SILENT: u16 = 1000;
const JOINERS: u16 = 200;
/// A standing client's first list; who waits longer comes back.
const LIST_LIMIT: Duration = Duration::from_secs(2);

/// Five connections with 1,000 topic lists outstanding each, never read.
pub fn pipelines(stage: &Stage, watch: &Watch) -> io::Result<u64> {
    let questions: Vec<u8> =
        (1..=1000).flat_map(|id| lists::question(id, &format!("bench/ns-{id:05}"))).collect();
    let mut links = stage.target.open_many(5).map_err(io::Error::other)?;
    for link in &mut links {
        link.write_all(&questions)?;
        link.set_nonblocking(true)?;
    }
    while !watch.over() {
        thread::sleep(50 * TICK);
    }
    Ok((links.len() * questions.len()) as u64)
}

/// 25 connections that ask for the schemas of 40 topics each and never read; a connection that is ended comes back.
pub fn schemas(stage: &Stage, watch: &Watch) -> io::Result<u64> {
    let question =
        |id: u64| Message::new().varint(1, id).text(2, &format!("persistent://bench/ns/topic-{id}"));
    let questions: Vec<u8> = (1..=40).flat_map(|id| wire::frame(wire::GET_SCHEMA, &question(id))).collect();
    let deaf = Target { receive_buffer_bytes: Some(8192), ..stage.target.clone() };
    let (mut held, mut sent): (Vec<Option<Link>>, u64) = ((0..25).map(|_| None).collect(), 0);
    while !watch.over() {
        for place in &mut held {
            if place.as_ref().is_some_and(|link| !ended(link)) {
                continue;
            }
            *place = None;
            // A server that accepts nobody else is what an attacker wants.
            let Ok(mut link) = deaf.open() else { continue };
            link.write_all(&questions)?;
            sent += questions.len() as u64;
            *place = Some(link);
        }
        thread::sleep(50 * TICK);
    }
    Ok(sent)
}

/// Whether the peer has ended a connection of which nothing is read.
fn ended(link: &Link) -> bool {
    let _ = link.socket().set_nonblocking(true);
    let over = match link.socket().peek(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    };
    over || !matches!(link.socket().take_error(), Ok(None))
}

/// A pipeline of lookups, and how much of it is sent and answered.
struct Pipeline {
    reader: Reader,
    sent: usize,
    answered: u64,
}

impl Pipeline {
    fn begin(target: &Target) -> io::Result<Pipeline> {
        Ok(Pipeline { reader: Reader::new(target.open()?)?, sent: 0, answered: 0 })
    }

    /// Send what there is room for, and take the answers that are there.
    fn go_on(&mut self, questions: &[u8], buffer: &mut [u8]) -> io::Result<usize> {
        let written = match self.reader.stream.write(&questions[self.sent..]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            written => written?,
        };
        self.sent += written;
        let count = self.reader.read(buffer)?;
        let mut data = &buffer[..count];
        while let Some(frame) = self.reader.scanner.next(&mut data) {
            // PINGs have no answer here, which would get into a lookup that is sent in part.
            let kind = frame.command().map(|(kind, _)| kind);
            self.answered += u64::from(matches!(kind, Some(wire::LOOKUP_RESPONSE | wire::ERROR)));
        }
        Ok(written)
    }

    fn over(&self) -> bool {
        self.answered >= LOOKUPS
    }
}

fn large_questions() -> Vec<u8> {
    let name = |id: u64| {
        let start = format!("persistent://bench/{UNHURRIED}/topic-{id:04}-");
        let missing = NAME_BYTES - start.len();
        start + &"x".repeat(missing)
    };
    (1..=LOOKUPS).flat_map(|id| asker::lookup(id, &name(id))).collect()
}

/// Ten connections that send 1,000 lookups of 3.9 KiB at once, each; whose lookups all have their answers sends 1,000
/// more, once the rate allows that. The broker takes its time with them, or they would not be the server's for long. A
/// connection that is ended comes back.
pub fn large_lookups(stage: &Stage, watch: &Watch) -> io::Result<u64> {
    let (questions, mut buffer) = (large_questions(), vec![0u8; CHUNK_BYTES]);
    let (mut held, mut sent): (Vec<Option<Pipeline>>, u64) = ((0..PIPELINES).map(|_| None).collect(), 0);
    let mut back = Instant::now();
    while !watch.over() {
        let (before, returning) = (sent, Instant::now() >= back);
        back = if returning { Instant::now() + COME_BACK } else { back };
        for place in &mut held {
            if place.is_none() && returning && !watch.over() {
                // A server that accepts nobody else is what an attacker wants.
                *place = Pipeline::begin(&stage.target).ok();
            }
            let Some(one) = place else { continue };
            match one.go_on(&questions, &mut buffer) {
                Ok(written) => sent += written as u64,
                Err(_) => *place = None,
            }
            if let Some(one) = place.as_mut().filter(|one| one.over()) {
                if watch.begun.elapsed().as_secs_f64() * stage.rate as f64 >= sent as f64 {
                    (one.sent, one.answered) = (0, 0);
                }
            }
        }
        if sent == before {
            thread::sleep(TICK);
        }
    }
    Ok(sent)
}

/// The frame that asks for a list that nobody else asks for: equal requests share a list.
fn distinct_question(id: u64) -> Vec<u8> {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let number = ASKED.fetch_add(1, Ordering::Relaxed).to_string();
    let property = Message::new().text(1, "asked-for").text(2, &number);
    let message = Message::new().varint(1, id).text(2, STANDING_NAMESPACE).varint(3, 0);
    wire::frame(wire::GET_TOPICS, &message.bytes(6, &property.0))
}

const STANDING_NAMESPACE: &str = "bench/ns-00001";

/// A client that has read a list like anybody, and reads neither of the two that it has asked for since.
fn stand(target: &Target) -> io::Result<Link> {
    let mut link = target.open()?;
    link.set_read_timeout(Some(LIST_LIMIT))?;
    link.write_all(&lists::question(1, STANDING_NAMESPACE))?;
    while session::parse(&session::read_frame(&mut link)?)?.0 != wire::GET_TOPICS_RESPONSE {}
    link.write_all(&[distinct_question(2), distinct_question(3)].concat())?;
    Ok(link)
}

/// 50 clients that read a list, ask for two more with distinct properties, and stand. A client that is ended comes
/// back.
pub fn standing_pairs(stage: &Stage, watch: &Watch) -> io::Result<u64> {
    let deaf = Target { receive_buffer_bytes: Some(8192), ..stage.target.clone() };
    let pair = (lists::question(1, STANDING_NAMESPACE).len() + 2 * distinct_question(2).len()) as u64;
    hold(STANDING, pair, watch, |_| stand(&deaf))
}

/// Keep so many clients that read nothing, each of which sends `bytes` when it begins; who is ended begins again.
fn hold(
    count: usize,
    bytes: u64,
    watch: &Watch,
    begin: impl Fn(usize) -> io::Result<Link>,
) -> io::Result<u64> {
    let (mut held, mut sent): (Vec<Option<Link>>, u64) = ((0..count).map(|_| None).collect(), 0);
    while !watch.over() {
        for (index, place) in held.iter_mut().enumerate() {
            if watch.over() {
                break;
            }
            if place.as_ref().is_some_and(|link| !ended(link)) {
                continue;
            }
            // A server that serves nobody else is what an attacker wants.
            *place = begin(index).ok();
            sent += if place.is_some() { bytes } else { 0 };
        }
        thread::sleep(50 * TICK);
    }
    Ok(sent)
}

/// 120 connections that ask for four lists each, read nothing, and all leave at once, again and again.
pub fn leaving_clients(stage: &Stage, watch: &Watch) -> io::Result<u64> {
    let deaf = Target { receive_buffer_bytes: Some(8192), ..stage.target.clone() };
    let questions: Vec<u8> = (1..=4).flat_map(distinct_question).collect();
    let mut sent = 0;
    while !watch.over() {
        let mut links = deaf.open_many(LEAVING).map_err(io::Error::other)?;
        for link in &mut links {
            link.write_all(&questions)?;
            sent += questions.len() as u64;
        }
        thread::sleep(LEAVE_AFTER);
    }
    Ok(sent)
}

/// 60 connections that ask for four lists each, read 34 KB/s, and send a PONG each 0.3 s; who is ended comes back.
pub fn slow_readers(stage: &Stage, watch: &Watch) -> io::Result<u64> {
    let slow = Target { receive_buffer_bytes: Some(4096), ..stage.target.clone() };
    let questions: Vec<u8> = (1..=4).flat_map(distinct_question).collect();
    drawl(&vec![slow; DRAWLING], &questions, watch)
}

/// 200 clients, an address each, that ask for the list that the neighbours ask for, and read it at 34 KB/s.
pub fn slow_joiners(stage: &Stage, watch: &Watch) -> io::Result<u64> {
    let slow = |index| Target { receive_buffer_bytes: Some(4096), ..apart(&stage.target, index) };
    let targets: Vec<Target> = (0..JOINERS).map(slow).collect();
    drawl(&targets, &lists::question(1, NEIGHBOURS_NAMESPACE), watch)
}

/// 1,000 clients, an address each, that ask for a list that nobody else asks for, and read nothing. A client that is
/// ended comes back.
pub fn silent_addresses(stage: &Stage, watch: &Watch) -> io::Result<u64> {
    let ask = |index: usize| -> io::Result<Link> {
        let deaf = Target { receive_buffer_bytes: Some(8192), ..apart(&stage.target, index as u16) };
        let mut link = deaf.open()?;
        link.write_all(&distinct_question(1))?;
        Ok(link)
    };
    hold(SILENT.into(), distinct_question(1).len() as u64, watch, ask)
}

/// The same target for a client of another network of this machine.
fn apart(target: &Target, index: u16) -> Target {
    let [high, low] = index.to_be_bytes();
    Target { source: Some(Ipv4Addr::new(127, 1 + high, low, 1)), ..target.clone() }
}

/// Ask as each of the targets, read slowly, and send a PONG now and then; who is ended comes back.
fn drawl(targets: &[Target], questions: &[u8], watch: &Watch) -> io::Result<u64> {
    let pong = wire::frame(wire::PONG, &Message::new());
    let mut buffer = [0u8; DRAWN_BYTES];
    let (mut held, mut sent, mut round): (Vec<Option<Link>>, u64, u32) =
        (targets.iter().map(|_| None).collect(), 0, 0);
    while !watch.over() {
        for (target, place) in targets.iter().zip(&mut held) {
            if watch.over() {
                break;
            }
            if let Some(link) = place {
                let beat = if round % PONG_EVERY == 0 { &pong[..] } else { &[] };
                if draw(link, &mut buffer, beat) {
                    continue;
                }
            }
            // A server that serves nobody else is what an attacker wants.
            *place = target.open().ok().and_then(|mut link| {
                link.write_all(questions).and_then(|()| link.set_nonblocking(true)).ok().map(|()| link)
            });
            sent += if place.is_some() { questions.len() as u64 } else { 0 };
        }
        round += 1;
        thread::sleep(DRAW_EVERY);
    }
    Ok(sent)
}

/// Take what is there, at most a buffer, and send a beat; whether the connection goes on.
fn draw(link: &mut Link, buffer: &mut [u8], beat: &[u8]) -> bool {
    let goes_on = |result: io::Result<usize>, ended: usize| match result {
        Ok(count) => count > 0 || ended > 0,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    };
    goes_on(link.write(beat), 1) && goes_on(link.read(buffer), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::wire::Scanner;

    #[test]
    fn a_pipeline_of_large_lookups_has_frames_below_4_kib_and_names_of_its_own() {
        let questions = large_questions();
        let (mut data, mut scanner, mut names) = (&questions[..], Scanner::new(), Vec::new());
        while let Some(frame) = scanner.next(&mut data) {
            let (kind, message) = frame.command().unwrap();
            let name = wire::bytes(message, 1).unwrap();
            assert_eq!((kind, name.len(), frame.wire_bytes < 4096), (wire::LOOKUP, NAME_BYTES, true));
            names.push(name.to_vec());
        }
        names.dedup();
        assert_eq!(names.len() as u64, LOOKUPS);
        assert!(PIPELINES * questions.len() > 32 * 1024 * 1024);
    }

    #[test]
    fn each_client_of_a_crowd_has_a_network_of_its_own() {
        let target = Target::plain("127.0.0.1:6650".parse().unwrap());
        let mut networks: Vec<_> =
            (0..SILENT).map(|index| apart(&target, index).source.unwrap().octets()).collect();
        assert!(networks.iter().all(|octets| octets[0] == 127 && octets[1] > 0));
        networks.dedup_by_key(|octets| [octets[1], octets[2]]);
        assert_eq!(networks.len(), usize::from(SILENT));
    }

    #[test]
    fn no_two_questions_of_standing_clients_are_equal() {
        let property = |question: Vec<u8>| {
            let message = session::parse(&question).unwrap().1.to_vec();
            wire::bytes(&message, 6).unwrap().to_vec()
        };
        assert_ne!(property(distinct_question(2)), property(distinct_question(2)));
    }
}
