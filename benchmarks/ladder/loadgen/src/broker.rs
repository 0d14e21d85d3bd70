//! The fake broker: one thread, one epoll loop, answers computed beforehand. It speaks the commands that a proxy
//! needs (CONNECT, PING, LOOKUP, PARTITIONED_METADATA, GET_TOPICS_OF_NAMESPACE, and those of the producer behind an
//! event log) and, in a data mode, echoes,
//! swallows or floods everything behind CONNECT. It must stay cheaper per byte than any proxy in front of it.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpListener;
use std::rc::Rc;
use std::str;
use std::time::{Duration, Instant};

use crate::answers;
use crate::args::Args;
use crate::credentials::Identity;
use crate::doors::Doors;
use crate::link::Link;
use crate::sys::{self, Epoll, Event};
use crate::tls::Tls;
use crate::topics::{Lists, Names};
use crate::wire::{self, Frame, Message, Scanner};

const LISTENER: u64 = u64::MAX;
const TLS_LISTENER: u64 = u64::MAX - 1;
const READ_BYTES: usize = 256 * 1024;
/// Of a request that arrives in pieces: a LOOKUP names its topic before its id.
const REQUEST_BYTES: usize = 8 * 1024;
/// What the name of a topic of another broker contains.

/// What the name of a topic contains whose lookup takes its time.
pub const UNHURRIED: &str = "unhurried";
/// How an upload over HTTP begins; as a frame of Pulsar's it would be longer than any.
const UPLOAD: &[u8] = b"POST ";
/// Answers handed to one writev: enough for any pipeline depth of the scenarios.
const GATHERED: usize = 8;

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Control,
    Echo,
    Sink,
    Flood,
    /// A web service that takes all that it is sent and never answers.
    Web,
}

struct Chunk {
    head: Vec<u8>,
    body: Rc<[u8]>,
}

struct Connection {
    stream: Link,
    scanner: Scanner,
    mode: Mode,
    /// Of all connections that this broker has had.
    number: u64,
    /// Nothing was read from it yet.
    fresh: bool,
    chunks: VecDeque<Chunk>,
    /// Bytes of the first chunk that are sent already.
    sent: usize,
    interest: u32,
}

/// How this broker differs from one that answers everything itself.
struct Manner {
    /// How long the lookup of a topic takes whose name holds `UNHURRIED`.
    unhurried: Duration,
    /// What it floods with.
    flood: Rc<[u8]>,
    /// The kernel's send buffer of a connection; 0 leaves the kernel's choice.
    send_buffer_bytes: i32,
}

/// The answer of a lookup that takes its time.
struct Later {
    due: Instant,
    slot: usize,
    /// Of the connection: the slot may be another's by then.
    number: u64,
    answer: (Vec<u8>, Rc<[u8]>),
}

struct Broker {
    epoll: Epoll,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    lists: Lists,
    data_mode: Mode,
    url: String,
    manner: Manner,
    /// All take equally long, so the first is the next.
    later: VecDeque<Later>,
    accepted: u64,
    /// Topic lists and lookups asked for since the start, and the CONNECTs.
    asked: (u64, u64, u64),
    empty: Rc<[u8]>,
    /// The data of every topic's schema.
    schema: Rc<[u8]>,
}

/// Serve until the process is ended; prints `port N`, or `port N tls M`, once it listens.
pub fn run(args: &Args) -> Result<(), String> {
    let data_mode = match args.text("data", "none").as_str() {
        "none" => Mode::Control,
        "echo" => Mode::Echo,
        "sink" => Mode::Sink,
        "flood" => Mode::Flood,
        other => return Err(format!("--data: got {other:?}, expected none, echo, sink or flood")),
    };
    let lists = Lists::new(Names::from(args)?);
    let manner = Manner {
        unhurried: args.seconds("unhurried", 0.0)?,
        flood: match args.text("flood-frames", "message").as_str() {
            "message" => answers::flood_frame().into(),
            "pong" => answers::pongs().into(),
            other => return Err(format!("--flood-frames: got {other:?}, expected message or pong")),
        },
        send_buffer_bytes: args.number("send-buffer-bytes", 0)? as i32,
    };
    let certificate = args.optional("certificate").zip(args.optional("key"));
    let identity =
        certificate.map(|(certificate, key)| Identity::from_files(certificate, key)).transpose()?;
    let doors = Doors::open(args.number("port", 0)? as u16, identity);
    doors.and_then(|doors| serve(doors, lists, data_mode, manner)).map_err(|error| format!("broker: {error}"))
}

fn serve(doors: Doors, lists: Lists, data_mode: Mode, manner: Manner) -> io::Result<()> {
    let port = doors.plain.local_addr()?.port();
    let mut broker = Broker {
        epoll: Epoll::new()?,
        connections: Vec::new(),
        free: Vec::new(),
        lists,
        data_mode,
        url: format!("pulsar://127.0.0.1:{port}"),
        manner,
        later: VecDeque::new(),
        accepted: 0,
        asked: (0, 0, 0),
        empty: Rc::new([]),
        schema: vec![b'x'; answers::SCHEMA_BYTES].into(),
    };
    broker.epoll.add(&doors.plain, sys::IN, LISTENER)?;
    if let Some((listener, _)) = &doors.tls {
        broker.epoll.add(listener, sys::IN, TLS_LISTENER)?;
    }
    println!("{}", doors.announce()?);
    io::stdout().flush()?;
    broker.turn(&doors)
}

impl Broker {
    fn turn(&mut self, doors: &Doors) -> io::Result<()> {
        let mut buffer = vec![0u8; READ_BYTES];
        let mut events = [Event::default(); 256];
        loop {
            let count = self.epoll.wait(&mut events, self.patience_ms())?;
            for event in events.iter().take(count).copied() {
                match event.token {
                    LISTENER => self.accept(&doors.plain, None)?,
                    TLS_LISTENER => {
                        let Some((listener, identity)) = &doors.tls else { continue };
                        self.accept(listener, Some(identity))?;
                    }
                    token => self.serve_one(token as usize, event.events, &mut buffer),
                }
            }
            self.answer_later(&mut buffer);
        }
    }

    /// Until the next answer is due, rounded up; -1 if none is.
    fn patience_ms(&self) -> i32 {
        let next = self.later.front().map(|later| later.due.saturating_duration_since(Instant::now()));
        next.map_or(-1, |left| left.as_micros().div_ceil(1000) as i32)
    }

    /// Send the answers that are due.
    fn answer_later(&mut self, buffer: &mut [u8]) {
        while self.later.front().is_some_and(|later| later.due <= Instant::now()) {
            let Some(Later { slot, number, answer, .. }) = self.later.pop_front() else { return };
            let asker = self.connections[slot].as_mut().filter(|connection| connection.number == number);
            let Some(connection) = asker else { continue };
            connection.push(answer.0, answer.1);
            self.serve_one(slot, 0, buffer);
        }
    }

    fn accept(&mut self, listener: &TcpListener, identity: Option<&Identity>) -> io::Result<()> {
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            stream.set_nodelay(true)?;
            if self.manner.send_buffer_bytes > 0 {
                sys::set_send_buffer(&stream, self.manner.send_buffer_bytes)?;
            }
            let mut link = match identity {
                None => Link::from(stream),
                Some(identity) => Link::secured(stream, Tls::server(identity)?),
            };
            link.set_nonblocking(true)?;
            let slot = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            self.epoll.add(&link, sys::IN, slot as u64)?;
            self.connections[slot] = Some(Connection::new(link, self.accepted, self.data_mode));
            self.accepted += 1;
        }
    }

    fn serve_one(&mut self, slot: usize, events: u32, buffer: &mut [u8]) {
        let Some(mut connection) = self.connections[slot].take() else { return };
        match self.step(slot as u64, &mut connection, events, buffer) {
            Ok(()) => self.connections[slot] = Some(connection),
            Err(_) => self.free.push(slot), // a peer that left: dropping the stream closes it
        }
    }

    fn step(
        &mut self,
        token: u64,
        connection: &mut Connection,
        events: u32,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        if events & (sys::IN | sys::HANGUP) != 0 && connection.interest & sys::IN != 0 {
            self.read(token, connection, buffer)?;
        }
        connection.flush()?;
        if connection.mode == Mode::Flood && connection.chunks.is_empty() {
            connection.push(Vec::new(), Rc::clone(&self.manner.flood));
        }
        // An echo reads no further while its peer does not take what is there: memory stays bounded.
        let idle = connection.chunks.is_empty() && !connection.stream.unsent();
        let interest = match (connection.mode, idle) {
            (_, true) => sys::IN,
            (Mode::Echo, false) => sys::OUT,
            (_, false) => sys::IN | sys::OUT,
        };
        if interest != connection.interest {
            connection.interest = interest;
            self.epoll.modify(&connection.stream, interest, token)?;
        }
        Ok(())
    }

    fn read(&mut self, token: u64, connection: &mut Connection, buffer: &mut [u8]) -> io::Result<()> {
        let count = match connection.stream.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        let data = &buffer[..count];
        if connection.fresh && data.starts_with(UPLOAD) {
            connection.mode = Mode::Web;
        }
        connection.fresh = false;
        match connection.mode {
            Mode::Control => self.control(token, connection, data),
            Mode::Echo => connection.echo(data, &self.empty)?,
            Mode::Sink => connection.sink(data, &self.empty),
            Mode::Flood | Mode::Web => {}
        }
        Ok(())
    }

    fn control(&mut self, token: u64, connection: &mut Connection, mut data: &[u8]) {
        let mut answers = Vec::new();
        while let Some(frame) = connection.scanner.next(&mut data) {
            let unhurried = self.unhurried(&frame);
            let Some(answer) = self.answer(&frame, &mut connection.mode) else { continue };
            if unhurried {
                let (slot, due) = (token as usize, Instant::now() + self.manner.unhurried);
                self.later.push_back(Later { due, slot, number: connection.number, answer });
            } else {
                answers.push(answer);
            }
        }
        for (head, body) in answers {
            connection.push(head, body);
        }
    }

    fn unhurried(&self, frame: &Frame) -> bool {
        let lookup =
            frame.command().filter(|(kind, _)| !self.manner.unhurried.is_zero() && *kind == wire::LOOKUP);
        let topic = lookup.and_then(|(_, message)| wire::bytes(message, 1));
        topic.is_some_and(|name| name.windows(UNHURRIED.len()).any(|part| part == UNHURRIED.as_bytes()))
    }

    fn answer(&mut self, frame: &Frame, mode: &mut Mode) -> Option<(Vec<u8>, Rc<[u8]>)> {
        let (kind, message) = frame.command()?;
        let small = |kind: u64, message: Message| Some((wire::frame(kind, &message), Rc::clone(&self.empty)));
        match kind {
            wire::CONNECT => {
                self.asked.2 += 1;
                *mode = if self.data_mode == Mode::Flood { Mode::Control } else { self.data_mode };
                small(wire::CONNECTED, answers::connected())
            }
            wire::FLOW if self.data_mode == Mode::Flood => {
                *mode = Mode::Flood;
                None
            }
            wire::PING => small(wire::PONG, Message::new()),
            wire::COUNTERS => {
                let (lists, lookups, connects) = self.asked;
                let counted = Message::new().varint(1, lists).varint(2, lookups).varint(3, connects);
                small(wire::COUNTERS_RESPONSE, counted)
            }
            wire::LOOKUP => {
                self.asked.1 += 1;
                let id = wire::number(message, 2)?;
                Some(self.look_up(id))
            }
            wire::PARTITIONED_METADATA => {
                let id = wire::number(message, 2)?;
                small(
                    wire::PARTITIONED_METADATA_RESPONSE,
                    Message::new().varint(1, 0).varint(2, id).varint(3, 0),
                )
            }
            wire::GET_SCHEMA => {
                Some((answers::schema_head(wire::number(message, 1)?), Rc::clone(&self.schema)))
            }
            wire::GET_TOPICS => {
                self.asked.0 += 1;
                let id = wire::number(message, 1)?;
                Some(self.lists.answer(id, str::from_utf8(wire::bytes(message, 2)?).ok()?))
            }
            _ => None,
        }
    }

    fn look_up(&self, id: u64) -> (Vec<u8>, Rc<[u8]>) {
        let found = answers::looked_up(&self.url, id);
        (wire::frame(wire::LOOKUP_RESPONSE, &found), Rc::clone(&self.empty))
    }
}

impl Connection {
    fn new(stream: Link, number: u64, data_mode: Mode) -> Connection {
        // A sink looks at the beginnings of large frames, and is to stay as cheap as it can be.
        let scanner = if data_mode == Mode::Sink { Scanner::new() } else { Scanner::keeping(REQUEST_BYTES) };
        Connection {
            stream,
            scanner,
            number,
            mode: Mode::Control,
            fresh: true,
            chunks: VecDeque::new(),
            sent: 0,
            interest: sys::IN,
        }
    }

    fn push(&mut self, head: Vec<u8>, body: Rc<[u8]>) {
        self.chunks.push_back(Chunk { head, body });
    }

    /// Send the bytes back as they came: frame for frame, as every byte of every frame goes back in order.
    fn echo(&mut self, data: &[u8], empty: &Rc<[u8]>) -> io::Result<()> {
        let written = match self.stream.write(data) {
            Ok(written) => written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        if written < data.len() {
            self.push(data[written..].to_vec(), Rc::clone(empty));
        }
        Ok(())
    }

    /// Swallow frames; the receipts of all frames that ended in this read leave together.
    fn sink(&mut self, mut data: &[u8], empty: &Rc<[u8]>) {
        let mut receipts = Vec::new();
        while let Some(frame) = self.scanner.next(&mut data) {
            let Some((wire::SEND, send)) = frame.command() else { continue };
            receipts.extend_from_slice(&wire::frame(wire::SEND_RECEIPT, &answers::receipt(send)));
        }
        if !receipts.is_empty() {
            self.push(receipts, Rc::clone(empty));
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.stream.flushed()? {
            return Ok(());
        }
        while !self.chunks.is_empty() {
            let mut slices = Vec::with_capacity(2 * GATHERED);
            for chunk in self.chunks.iter().take(GATHERED) {
                slices.push(IoSlice::new(&chunk.head));
                slices.push(IoSlice::new(&chunk.body));
            }
            let mut rest = &mut slices[..];
            IoSlice::advance_slices(&mut rest, self.sent);
            match self.stream.write_vectored(rest) {
                Ok(written) => self.retire(written),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn retire(&mut self, written: usize) {
        self.sent += written;
        while let Some(first) = self.chunks.front() {
            let size = first.head.len() + first.body.len();
            if self.sent < size {
                return;
            }
            self.sent -= size;
            self.chunks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker(manner: Manner) -> Broker {
        Broker {
            epoll: Epoll::new().unwrap(),
            connections: Vec::new(),
            free: Vec::new(),
            lists: Lists::new(Names { count: 1, bytes: 100 }),
            data_mode: Mode::Control,
            url: "pulsar://here".to_owned(),
            manner,
            later: VecDeque::new(),
            accepted: 0,
            asked: (0, 0, 0),
            empty: Rc::new([]),
            schema: Rc::new([]),
        }
    }

    fn manner(seconds: u64) -> Manner {
        Manner { unhurried: Duration::from_secs(seconds), flood: Rc::new([]), send_buffer_bytes: 0 }
    }

    fn answer(broker: &mut Broker, question: &[u8]) -> Option<(u64, Vec<u8>)> {
        let frame = Scanner::new().next(&mut &question[..]).unwrap().head.to_vec();
        let (head, _) =
            broker.answer(&Frame { wire_bytes: question.len(), head: &frame }, &mut Mode::Control)?;
        let (kind, message) = Scanner::new().next(&mut &head[..])?.command().map(|(k, m)| (k, m.to_vec()))?;
        Some((kind, message))
    }

    #[test]
    fn lookups_end_here_and_all_questions_are_counted() {
        let mut broker = broker(manner(0));
        let (_, found) = answer(&mut broker, &crate::asker::lookup(7, "a/here/t")).unwrap();
        assert_eq!(wire::bytes(&found, 1), Some("pulsar://here".as_bytes()));
        assert_eq!((wire::number(&found, 3), wire::number(&found, 4)), (Some(1), Some(7)));
        let counters = answer(&mut broker, &wire::frame(wire::COUNTERS, &Message::new())).unwrap();
        assert_eq!(
            counters,
            (wire::COUNTERS_RESPONSE, Message::new().varint(1, 0).varint(2, 1).varint(3, 0).0)
        );
    }

    #[test]
    fn only_lookups_of_topics_that_say_so_take_their_time() {
        let takes_time = |seconds, question: &[u8]| {
            broker(manner(seconds)).unhurried(&Scanner::new().next(&mut &question[..]).unwrap())
        };
        let unhurried = crate::asker::lookup(7, "a/unhurried/t");
        assert_eq!((takes_time(2, &unhurried), takes_time(0, &unhurried)), (true, false));
        assert!(!takes_time(2, &crate::asker::lookup(7, "a/here/t")));
        assert!(!takes_time(2, &crate::lists::question(8, "a/unhurried")));
    }
}
