//! How every scenario begins: connect, handshake where TLS is asked for, CONNECT, CONNECTED, all of it blocking and
//! bounded in time.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use crate::credentials::Trust;
use crate::link::Link;
use crate::sys;
use crate::tls::Tls;
use crate::wire::{self, Message, Scanner};

const HANDSHAKE_LIMIT: Duration = Duration::from_secs(20);

/// What a scenario connects to.
#[derive(Clone)]
pub struct Target {
    pub address: SocketAddrV4,
    /// `host:port` of the broker: asks the proxy for a relay instead of lookup mode.
    pub via: Option<String>,
    /// SO_RCVBUF, set before connect; the kernel's choice if absent.
    pub receive_buffer_bytes: Option<i32>,
    /// The client's address; the kernel's choice (127.0.0.1) if absent.
    pub source: Option<Ipv4Addr>,
    /// Speak TLS; plain text if absent.
    pub tls: Option<Trust>,
    /// Each connection presents a token of its own; nothing is presented if absent.
    pub tokens: Option<Arc<Tokens>>,
}

/// Tokens for one connection each, in their order.
pub struct Tokens {
    all: Vec<String>,
    next: AtomicUsize,
}

impl Tokens {
    /// Read a file with a token in each line.
    pub fn from_file(path: &str) -> Result<Arc<Tokens>, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        let all: Vec<String> = text.lines().map(str::to_owned).collect();
        match all.is_empty() {
            true => Err(format!("{path}: got no line, expected a token in each")),
            false => Ok(Arc::new(Tokens { all, next: AtomicUsize::new(0) })),
        }
    }

    /// The next token; the first again behind the last.
    fn next(&self) -> &str {
        &self.all[self.next.fetch_add(1, Ordering::Relaxed) % self.all.len()]
    }
}

impl Target {
    pub fn plain(address: SocketAddrV4) -> Target {
        Target { address, via: None, receive_buffer_bytes: None, source: None, tls: None, tokens: None }
    }

    /// Open a connection that has got its CONNECTED; reads on it block until the scenario says otherwise.
    pub fn open(&self) -> io::Result<Link> {
        let stream = match (self.receive_buffer_bytes, self.source) {
            (None, None) => TcpStream::connect(self.address)?,
            (bytes, source) => sys::connect_as(self.address, bytes, source)?,
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(HANDSHAKE_LIMIT))?;
        let mut link = self.link(stream)?;
        link.shake()?;
        link.write_all(&self.connect())?;
        let answer = read_frame(&mut link)?;
        let (kind, message) = parse(&answer)?;
        if kind != wire::CONNECTED {
            let text = String::from_utf8_lossy(wire::bytes(message, 3).unwrap_or(b"")).into_owned();
            return Err(io::Error::other(format!(
                "CONNECT: got command {kind} {text:?}, expected CONNECTED"
            )));
        }
        Ok(link)
    }

    /// A connected socket as this target is spoken to; the handshake has not begun.
    pub fn link(&self, stream: TcpStream) -> io::Result<Link> {
        match &self.tls {
            None => Ok(Link::from(stream)),
            Some(trust) => Ok(Link::secured(stream, Tls::client(trust)?)),
        }
    }

    /// The CONNECT frame.
    pub fn connect(&self) -> Vec<u8> {
        let mut connect = Message::new().text(1, "ladder-loadgen").varint(4, wire::PROTOCOL_VERSION);
        connect = match &self.tokens {
            None => connect.text(5, "none"),
            Some(tokens) => connect.text(3, tokens.next()).text(5, "token"),
        };
        if let Some(broker) = &self.via {
            connect = connect.text(6, broker);
        }
        let flags = Message::new().varint(1, 1).varint(2, 1).varint(3, 1);
        wire::frame(wire::CONNECT, &connect.bytes(10, &flags.0))
    }

    pub fn open_many(&self, count: u64) -> Result<Vec<Link>, String> {
        let open = |index: u64| {
            self.open().map_err(|error| format!("connection {index} to {}: {error}", self.address))
        };
        (0..count).map(open).collect()
    }
}

/// Read one whole frame, its length word included; for use outside of what is measured.
pub fn read_frame(stream: &mut Link) -> io::Result<Vec<u8>> {
    let mut frame = vec![0u8; 4];
    stream.read_exact(&mut frame)?;
    let size = u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize;
    frame.resize(4 + size, 0);
    stream.read_exact(&mut frame[4..])?;
    Ok(frame)
}

/// The kind and message of one whole frame.
pub fn parse(frame: &[u8]) -> io::Result<(u64, &[u8])> {
    let size = frame.len();
    let invalid = || io::Error::new(ErrorKind::InvalidData, format!("a frame of {size} bytes is no command"));
    let whole = wire::Frame { wire_bytes: size, head: frame.get(4..).ok_or_else(invalid)? };
    whole.command().ok_or_else(invalid)
}

/// The streaming part of a connection that every event loop needs.
pub struct Reader {
    pub stream: Link,
    pub scanner: Scanner,
}

impl Reader {
    pub fn new(mut stream: Link) -> io::Result<Reader> {
        stream.set_nonblocking(true)?;
        Ok(Reader { stream, scanner: Scanner::new() })
    }

    /// Read what is there into `buffer`: nothing there is 0, the end of the stream an error.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.stream.read(buffer) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => Ok(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error),
        }
    }

    pub fn pong(&mut self) -> io::Result<()> {
        self.send(&wire::frame(wire::PONG, &Message::new()))
    }

    /// Send something small as a whole; a socket that has no room for it is an error.
    pub fn send(&mut self, data: &[u8]) -> io::Result<()> {
        self.stream.write_all(data)?;
        self.stream.flush()
    }
}
