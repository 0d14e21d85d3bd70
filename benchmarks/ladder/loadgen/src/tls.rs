//! TLS over a socket that somebody else owns, by rustls without its buffers: records are opened in one scratch buffer
//! per thread, so that a connection at rest keeps next to nothing and a busy one copies each byte once.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};

use crate::credentials::{Identity, Trust};

/// Plain bytes sealed by one write: as many as the event loops read at once.
const SEALED_AT_ONCE: usize = 256 * 1024;
/// No record is longer, its head included.
const RECORD_BYTES: usize = 5 + 16_384 + 256;
/// What sealing adds to a record of 16 KiB: head, type and tag.
const RECORD_ENVELOPE: usize = 5 + 1 + 16;
const SCRATCH_BYTES: usize = SEALED_AT_ONCE + 2 * RECORD_BYTES;

struct Scratch {
    plain: Vec<u8>,
    records: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> =
        RefCell::new(Scratch { plain: vec![0; SEALED_AT_ONCE], records: vec![0; SCRATCH_BYTES] });
}

enum Session {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

pub struct Tls {
    session: Session,
    /// The beginning of a record whose end has not come.
    sealed: Vec<u8>,
    /// Decrypted bytes that the last read had no room for.
    opened: Vec<u8>,
    /// Records that the socket did not take.
    unsent: Vec<u8>,
    established: bool,
    /// Somebody waits for events, and a read is one read of the socket.
    pub polled: bool,
    ended: bool,
}

/// Where decrypted bytes go: first where the reader wants them, then where they wait.
struct Room<'a> {
    wanted: &'a mut [u8],
    filled: usize,
    rest: &'a mut Vec<u8>,
}

impl Room<'_> {
    fn put(&mut self, payload: &[u8]) {
        let now = payload.len().min(self.wanted.len() - self.filled);
        self.wanted[self.filled..self.filled + now].copy_from_slice(&payload[..now]);
        self.filled += now;
        self.rest.extend_from_slice(&payload[now..]);
    }
}

enum Next {
    Again,
    Ready,
    Wait,
    End,
}

/// Do what a session asks for and tell how many bytes of the records are used.
fn step<D>(status: UnbufferedStatus<D>, unsent: &mut Vec<u8>, room: &mut Room) -> io::Result<(usize, Next)> {
    let mut used = status.discard;
    let next = match status.state.map_err(io::Error::other)? {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let record = record.map_err(io::Error::other)?;
                used += record.discard;
                room.put(record.payload);
            }
            Next::Again
        }
        ConnectionState::EncodeTlsData(mut data) => {
            let start = unsent.len();
            unsent.resize(start + 2 * RECORD_BYTES, 0);
            let count = data.encode(&mut unsent[start..]).map_err(io::Error::other)?;
            unsent.truncate(start + count);
            Next::Again
        }
        ConnectionState::TransmitTlsData(data) => {
            data.done(); // it is in `unsent` and leaves before anything else
            Next::Again
        }
        ConnectionState::WriteTraffic(_) => Next::Ready,
        ConnectionState::BlockedHandshake => Next::Wait,
        _ => Next::End,
    };
    Ok((used, next))
}

fn seal<D>(status: UnbufferedStatus<D>, plain: &[u8], records: &mut [u8]) -> io::Result<usize> {
    match status.state.map_err(io::Error::other)? {
        ConnectionState::WriteTraffic(mut traffic) => {
            traffic.encrypt(plain, records).map_err(io::Error::other)
        }
        other => Err(io::Error::other(format!("got {other:?}, expected to be allowed to write"))),
    }
}

impl Tls {
    pub fn client(trust: &Trust) -> io::Result<Tls> {
        let name = ServerName::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST).into());
        let session = UnbufferedClientConnection::new(trust.config(), name);
        Ok(Tls::new(Session::Client(session.map_err(io::Error::other)?)))
    }

    pub fn server(identity: &Identity) -> io::Result<Tls> {
        let session = UnbufferedServerConnection::new(identity.config());
        Ok(Tls::new(Session::Server(session.map_err(io::Error::other)?)))
    }

    fn new(session: Session) -> Tls {
        let (sealed, opened, unsent) = (Vec::new(), Vec::new(), Vec::new());
        Tls { session, sealed, opened, unsent, established: false, polled: false, ended: false }
    }

    pub fn unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    pub fn unread(&self) -> bool {
        !self.opened.is_empty()
    }

    pub fn shake(&mut self, stream: &TcpStream) -> io::Result<()> {
        if self.sealed.is_empty() {
            self.open(&mut [], &mut [])?; // a client's first words
        }
        loop {
            self.flush(stream)?;
            if self.established {
                return Ok(());
            }
            self.fill(stream, &mut [])?;
            if self.ended {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Read what is there and decrypt it; 0 is the end of the stream.
    pub fn read(&mut self, stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
        if self.unread() {
            let count = self.opened.len().min(buffer.len());
            buffer[..count].copy_from_slice(&self.opened[..count]);
            self.opened.drain(..count);
            return Ok(count);
        }
        while !self.ended {
            let count = self.fill(stream, buffer)?;
            if self.unsent() {
                ignore_blocked(self.flush(stream))?;
            }
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            if self.polled && !self.ended {
                return Err(ErrorKind::WouldBlock.into()); // more of the record will be announced
            }
        }
        Ok(0)
    }

    /// One read of the socket, so large that what is in it finds room in a buffer that is itself not small.
    fn fill(&mut self, mut stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
        SCRATCH.with_borrow_mut(|scratch| {
            let kept = self.sealed.len();
            let most = buffer.len().clamp(2 * RECORD_BYTES, SEALED_AT_ONCE) - kept;
            let count = stream.read(&mut scratch.records[kept..kept + most])?;
            self.ended = count == 0;
            if kept + count < self.announced() {
                // With small windows a record comes in many pieces: each is copied once, not with all before it.
                self.sealed.extend_from_slice(&scratch.records[kept..kept + count]);
                return Ok(0);
            }
            scratch.records[..kept].copy_from_slice(&self.sealed);
            let records = &mut scratch.records[..kept + count];
            let (used, filled) = self.open(records, buffer)?;
            self.sealed.clear();
            self.sealed.extend_from_slice(&records[used..]);
            Ok(filled)
        })
    }

    /// The size of the record whose beginning is kept; 0 if not even its length is.
    fn announced(&self) -> usize {
        let length = self.sealed.get(3..5).map(|length| u16::from_be_bytes([length[0], length[1]]));
        length.map_or(0, |length| 5 + usize::from(length))
    }

    /// Open whole records and do what the handshake asks for; returns bytes used and bytes put into `wanted`.
    fn open(&mut self, records: &mut [u8], wanted: &mut [u8]) -> io::Result<(usize, usize)> {
        let mut room = Room { wanted, filled: 0, rest: &mut self.opened };
        let mut used = 0;
        loop {
            let rest = &mut records[used..];
            let (more, next) = match &mut self.session {
                Session::Client(client) => {
                    step(client.process_tls_records(rest), &mut self.unsent, &mut room)?
                }
                Session::Server(server) => {
                    step(server.process_tls_records(rest), &mut self.unsent, &mut room)?
                }
            };
            used += more;
            match next {
                Next::Again => continue,
                Next::Ready => self.established = true,
                Next::Wait => {}
                Next::End => self.ended = true,
            }
            return Ok((used, room.filled));
        }
    }

    pub fn write(&mut self, stream: &TcpStream, data: &[u8]) -> io::Result<usize> {
        self.flush(stream)?;
        SCRATCH.with_borrow_mut(|scratch| {
            let plain = &data[..data.len().min(SEALED_AT_ONCE)];
            self.send(stream, plain, &mut scratch.records)?;
            Ok(plain.len())
        })
    }

    /// Gather first: a record for each slice would be small records.
    pub fn write_vectored(&mut self, stream: &TcpStream, slices: &[IoSlice]) -> io::Result<usize> {
        self.flush(stream)?;
        SCRATCH.with_borrow_mut(|scratch| {
            let mut count = 0;
            for slice in slices {
                let now = slice.len().min(SEALED_AT_ONCE - count);
                scratch.plain[count..count + now].copy_from_slice(&slice[..now]);
                count += now;
            }
            let Scratch { plain, records } = scratch;
            self.send(stream, &plain[..count], records)?;
            Ok(count)
        })
    }

    fn send(&mut self, mut stream: &TcpStream, plain: &[u8], records: &mut [u8]) -> io::Result<()> {
        debug_assert!(plain.len() + plain.len().div_ceil(16_384) * RECORD_ENVELOPE <= records.len());
        let sealed = match &mut self.session {
            Session::Client(client) => seal(client.process_tls_records(&mut []), plain, records)?,
            Session::Server(server) => seal(server.process_tls_records(&mut []), plain, records)?,
        };
        let sent = match stream.write(&records[..sealed]) {
            Ok(sent) => sent,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        self.unsent.extend_from_slice(&records[sent..sealed]);
        ignore_blocked(self.flush(stream))
    }

    /// Send what is left; `WouldBlock` if the socket is full again before the end.
    pub fn flush(&mut self, mut stream: &TcpStream) -> io::Result<()> {
        while self.unsent() {
            let sent = stream.write(&self.unsent)?;
            self.unsent.drain(..sent);
        }
        self.unsent = Vec::new();
        Ok(())
    }
}

fn ignore_blocked(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if error.kind() == ErrorKind::WouldBlock { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Link;
    use std::net::TcpListener;
    use std::process::Command;
    use std::thread;
    use std::time::Duration;

    /// A certificate of its own authority, by the `openssl` command.
    fn identity(of: &str) -> (String, String) {
        let base = std::env::temp_dir().join(format!("loadgen-{}-{of}", std::process::id()));
        let path = |end: &str| format!("{}.{end}", base.display());
        let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=t";
        let names = "subjectAltName=IP:127.0.0.1";
        let mut command = Command::new("openssl");
        command.args(words.split(' ')).args([
            "-addext",
            names,
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ]);
        let made = command.args(["-out", &path("pem"), "-keyout", &path("key")]).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        (path("pem"), path("key"))
    }

    fn pair(of: &str) -> (Link, Link) {
        let (certificate, key) = identity(of);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut client = Link::secured(near, Tls::client(&Trust::from_file(&certificate).unwrap()).unwrap());
        let identity = Identity::from_files(&certificate, &key).unwrap();
        let mut server = Link::secured(listener.accept().unwrap().0, Tls::server(&identity).unwrap());
        // Bytes that are lost fail a test, they do not hang it.
        for link in [&client, &server] {
            link.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        }
        let shaken = thread::spawn(move || server.shake().map(|_| server));
        assert!(client.shake().unwrap());
        (client, shaken.join().unwrap().unwrap())
    }

    #[test]
    fn bytes_arrive_in_order_whatever_the_sizes_of_reads_and_writes() {
        let sent: Vec<u8> = (0..3_000_000u32).map(|index| (index / 251) as u8).collect();
        for (written, read) in [(1_000_000, 256 * 1024), (40_000, 3), (16_385, 1000)] {
            let (mut client, mut server) = pair(&format!("{written}"));
            let all = if read < 100 { &sent[..100_000] } else { &sent[..] }.to_vec();
            let expected = all.clone();
            let writer = thread::spawn(move || {
                all.chunks(written).for_each(|part| client.write_all(part).unwrap());
                client
            });
            let (mut got, mut buffer) = (Vec::new(), vec![0; read]);
            while got.len() < expected.len() {
                let count = server.read(&mut buffer).unwrap();
                assert!(count > 0);
                got.extend_from_slice(&buffer[..count]);
            }
            assert!(got == expected, "writes of {written}, reads of {read}");
            drop(writer.join().unwrap());
            assert_eq!(server.read(&mut buffer).unwrap(), 0);
        }
    }

    #[test]
    fn a_full_socket_keeps_what_is_sealed_until_it_is_flushed() {
        let (mut client, mut server) = pair("full");
        client.set_nonblocking(true).unwrap();
        let mut accepted = 0;
        while let Ok(count) = client.write_vectored(&[IoSlice::new(&[1; 7]), IoSlice::new(&[2; 100_000])]) {
            accepted += count;
        }
        assert!(client.unsent());
        assert_eq!(client.flush().unwrap_err().kind(), ErrorKind::WouldBlock);
        let reader = thread::spawn(move || {
            let mut got = vec![0; accepted];
            server.read_exact(&mut got).unwrap();
            got
        });
        while client.flush().is_err() {
            thread::yield_now();
        }
        let got = reader.join().unwrap();
        assert!(!client.unsent());
        assert!(got
            .chunks(100_007)
            .all(|part| part[..7] == [1; 7] && part[7..].iter().all(|byte| *byte == 2)));
    }

    #[test]
    fn a_server_that_nobody_trusts_is_refused() {
        let (other, _) = identity("other");
        let (certificate, key) = identity("shown");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut client = Link::secured(near, Tls::client(&Trust::from_file(&other).unwrap()).unwrap());
        let identity = Identity::from_files(&certificate, &key).unwrap();
        let mut server = Link::secured(listener.accept().unwrap().0, Tls::server(&identity).unwrap());
        let shaken = thread::spawn(move || server.shake().map(|_| ()));
        assert!(client.shake().unwrap_err().to_string().contains("certificate"));
        drop(client);
        let _ = shaken.join().unwrap();
    }
}
