//! The fake broker: one thread, one epoll loop, answers computed beforehand. It speaks the commands that a proxy
//! needs (CONNECT, PING, LOOKUP, PARTITIONED_METADATA, GET_TOPICS_OF_NAMESPACE) and, in a data mode, echoes,
//! swallows or floods everything behind CONNECT. It must stay cheaper per byte than any proxy in front of it.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::str;

use crate::args::Args;
use crate::sys::{self, Epoll, Event};
use crate::topics::Lists;
use crate::wire::{self, Frame, Message, Scanner};

const LISTENER: u64 = u64::MAX;
const READ_BYTES: usize = 256 * 1024;
/// What the name of a topic of another broker contains.
pub const ELSEWHERE: &str = "elsewhere";
const FLOOD_PAYLOAD_BYTES: usize = 64 * 1024;
/// Answers handed to one writev: enough for any pipeline depth of the scenarios.
const GATHERED: usize = 8;

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Control,
    Echo,
    Sink,
    Flood,
}

struct Chunk {
    head: Vec<u8>,
    body: Rc<[u8]>,
}

struct Connection {
    stream: TcpStream,
    scanner: Scanner,
    mode: Mode,
    chunks: VecDeque<Chunk>,
    /// Bytes of the first chunk that are sent already.
    sent: usize,
    interest: u32,
}

/// How this broker differs from one that answers everything itself.
struct Manner {
    /// Announced in CONNECTED.
    max_message_bytes: u64,
    /// The broker that owns every topic whose name holds `ELSEWHERE`.
    redirect: Option<String>,
    /// Answers CONNECT and PING and nothing else.
    silent: bool,
}

struct Broker {
    epoll: Epoll,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    lists: Lists,
    data_mode: Mode,
    url: String,
    manner: Manner,
    /// Topic lists and lookups asked for since the start.
    asked: (u64, u64),
    flood: Rc<[u8]>,
    empty: Rc<[u8]>,
}

/// Serve until the process is ended; prints `port N` once it listens.
pub fn run(args: &Args) -> Result<(), String> {
    let data_mode = match args.text("data", "none").as_str() {
        "none" => Mode::Control,
        "echo" => Mode::Echo,
        "sink" => Mode::Sink,
        "flood" => Mode::Flood,
        other => return Err(format!("--data: got {other:?}, expected none, echo, sink or flood")),
    };
    let lists =
        Lists::new(args.number("topics", 10_000)? as usize, args.number("topic-bytes", 100)? as usize);
    let manner = Manner {
        max_message_bytes: args.number("max-message-bytes", wire::MAX_MESSAGE_BYTES)?,
        redirect: args.optional("redirect").map(|address| format!("pulsar://{address}")),
        silent: args.switch("silent"),
    };
    let port = args.number("port", 0)? as u16;
    serve(port, lists, data_mode, manner).map_err(|error| format!("broker: {error}"))
}

fn serve(port: u16, lists: Lists, data_mode: Mode, manner: Manner) -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    sys::deepen_backlog(&listener, 4096)?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    let mut broker = Broker {
        epoll: Epoll::new()?,
        connections: Vec::new(),
        free: Vec::new(),
        lists,
        data_mode,
        url: format!("pulsar://127.0.0.1:{port}"),
        manner,
        asked: (0, 0),
        flood: flood_frame().into(),
        empty: Rc::new([]),
    };
    broker.epoll.add(&listener, sys::IN, LISTENER)?;
    println!("port {port}");
    io::stdout().flush()?;
    broker.turn(&listener)
}

/// A MESSAGE frame whose payload nobody looks at.
fn flood_frame() -> Vec<u8> {
    let message_id = Message::new().varint(1, 1).varint(2, 1);
    let command = Message::new().varint(1, 0).bytes(2, &message_id.0);
    let mut bytes = wire::head(wire::MESSAGE, &command, 0);
    let total = (bytes.len() - 4 + FLOOD_PAYLOAD_BYTES) as u32;
    bytes[..4].copy_from_slice(&total.to_be_bytes());
    bytes.resize(bytes.len() + FLOOD_PAYLOAD_BYTES, b'f');
    bytes
}

impl Broker {
    fn turn(&mut self, listener: &TcpListener) -> io::Result<()> {
        let mut buffer = vec![0u8; READ_BYTES];
        let mut events = [Event::default(); 256];
        loop {
            let count = self.epoll.wait(&mut events, -1)?;
            for event in events.iter().take(count).copied() {
                match event.token {
                    LISTENER => self.accept(listener)?,
                    token => self.serve_one(token as usize, event.events, &mut buffer),
                }
            }
        }
    }

    fn accept(&mut self, listener: &TcpListener) -> io::Result<()> {
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let slot = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            self.epoll.add(&stream, sys::IN, slot as u64)?;
            self.connections[slot] = Some(Connection::new(stream));
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
            self.read(connection, buffer)?;
        }
        connection.flush()?;
        if connection.mode == Mode::Flood && connection.chunks.is_empty() {
            connection.push(Vec::new(), Rc::clone(&self.flood));
        }
        // An echo reads no further while its peer does not take what is there: memory stays bounded.
        let interest = match (connection.mode, connection.chunks.is_empty()) {
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

    fn read(&mut self, connection: &mut Connection, buffer: &mut [u8]) -> io::Result<()> {
        let count = match connection.stream.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        let data = &buffer[..count];
        match connection.mode {
            Mode::Control => self.control(connection, data),
            Mode::Echo => connection.echo(data, &self.empty)?,
            Mode::Sink => connection.sink(data, &self.empty),
            Mode::Flood => {}
        }
        Ok(())
    }

    fn control(&mut self, connection: &mut Connection, mut data: &[u8]) {
        let mut answers = Vec::new();
        while let Some(frame) = connection.scanner.next(&mut data) {
            if let Some(answer) = self.answer(&frame, &mut connection.mode) {
                answers.push(answer);
            }
        }
        for (head, body) in answers {
            connection.push(head, body);
        }
    }

    fn answer(&mut self, frame: &Frame, mode: &mut Mode) -> Option<(Vec<u8>, Rc<[u8]>)> {
        let (kind, message) = frame.command()?;
        let small = |kind: u64, message: Message| Some((wire::frame(kind, &message), Rc::clone(&self.empty)));
        match kind {
            wire::CONNECT => {
                *mode = if self.data_mode == Mode::Flood { Mode::Control } else { self.data_mode };
                small(wire::CONNECTED, connected(self.manner.max_message_bytes))
            }
            wire::FLOW if self.data_mode == Mode::Flood => {
                *mode = Mode::Flood;
                None
            }
            wire::PING => small(wire::PONG, Message::new()),
            wire::COUNTERS => {
                let (lists, lookups) = self.asked;
                small(wire::COUNTERS_RESPONSE, Message::new().varint(1, lists).varint(2, lookups))
            }
            wire::LOOKUP => {
                self.asked.1 += 1;
                let id = wire::number(message, 2)?;
                let topic = str::from_utf8(wire::bytes(message, 1)?).ok()?;
                (!self.manner.silent).then(|| self.look_up(topic, id))
            }
            wire::PARTITIONED_METADATA => {
                let id = wire::number(message, 2)?;
                small(
                    wire::PARTITIONED_METADATA_RESPONSE,
                    Message::new().varint(1, 0).varint(2, id).varint(3, 0),
                )
            }
            wire::GET_TOPICS => {
                self.asked.0 += 1;
                if self.manner.silent {
                    return None;
                }
                let id = wire::number(message, 1)?;
                Some(self.lists.answer(id, str::from_utf8(wire::bytes(message, 2)?).ok()?))
            }
            _ => None,
        }
    }

    fn look_up(&self, topic: &str, id: u64) -> (Vec<u8>, Rc<[u8]>) {
        let found = match &self.manner.redirect {
            Some(url) if topic.contains(ELSEWHERE) => looked_up(url, RESPONSE_REDIRECT, id),
            _ => looked_up(&self.url, RESPONSE_CONNECT, id),
        };
        (wire::frame(wire::LOOKUP_RESPONSE, &found), Rc::clone(&self.empty))
    }
}

fn connected(max_message_bytes: u64) -> Message {
    let flags = Message::new().varint(1, 1).varint(2, 1).varint(3, 1).varint(4, 1).varint(5, 1).varint(6, 1);
    Message::new()
        .text(1, "fake-broker")
        .varint(2, wire::PROTOCOL_VERSION)
        .varint(3, max_message_bytes)
        .bytes(4, &flags.0)
}

const RESPONSE_REDIRECT: u64 = 0;
const RESPONSE_CONNECT: u64 = 1;

fn looked_up(url: &str, response: u64, id: u64) -> Message {
    Message::new().text(1, url).varint(3, response).varint(4, id).varint(5, 1).varint(8, 0)
}

impl Connection {
    fn new(stream: TcpStream) -> Connection {
        Connection {
            stream,
            scanner: Scanner::new(),
            mode: Mode::Control,
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
            let sequence = wire::number(send, 2).unwrap_or(0);
            let receipt = Message::new().varint(1, 0).varint(2, sequence);
            receipts.extend_from_slice(&wire::frame(wire::SEND_RECEIPT, &receipt));
        }
        if !receipts.is_empty() {
            self.push(receipts, Rc::clone(empty));
        }
    }

    fn flush(&mut self) -> io::Result<()> {
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
