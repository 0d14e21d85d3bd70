//! A connection, in plain text or under TLS, with one way to read and write it, blocking or not. What a write has
//! sealed and the socket did not take stays here: `unsent` tells, and `flush` goes on with it. Knows nothing of Pulsar.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use crate::tls::Tls;

pub struct Link {
    stream: TcpStream,
    tls: Option<Box<Tls>>,
}

impl From<TcpStream> for Link {
    fn from(stream: TcpStream) -> Link {
        Link { stream, tls: None }
    }
}

impl Link {
    pub fn secured(stream: TcpStream, tls: Tls) -> Link {
        Link { stream, tls: Some(Box::new(tls)) }
    }

    /// Go on with the handshake; tells whether it is over, as it always is where the socket blocks.
    pub fn shake(&mut self) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else { return Ok(true) };
        match tls.shake(&self.stream) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether bytes that count as written wait for room in the socket: who polls must ask for it.
    pub fn unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.unsent())
    }

    /// Send what is left; tells whether the socket took all of it.
    pub fn flushed(&mut self) -> io::Result<bool> {
        match self.flush() {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Block or not; what was decrypted and not read would be announced by no event, so there must be none of it.
    pub fn set_nonblocking(&mut self, nonblocking: bool) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            if nonblocking && tls.unread() {
                return Err(io::Error::other("got bytes behind a whole answer, expected none"));
            }
            tls.polled = nonblocking;
        }
        self.stream.set_nonblocking(nonblocking)
    }

    /// Do not block; the caller reads once without an event, because bytes may be decrypted already.
    pub fn set_polled(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.polled = true;
        }
        self.stream.set_nonblocking(true)
    }

    /// The socket, for those who look at no byte.
    pub fn socket(&self) -> &TcpStream {
        &self.stream
    }

    pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(limit)
    }
}

impl AsRawFd for Link {
    fn as_raw_fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
}

impl Read for Link {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.stream.read(buffer),
            Some(tls) => tls.read(&self.stream, buffer),
        }
    }
}

impl Write for Link {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.stream.write(data),
            Some(tls) => tls.write(&self.stream, data),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.stream.write_vectored(slices),
            Some(tls) => tls.write_vectored(&self.stream, slices),
        }
    }

    /// `WouldBlock` while something is unsent.
    fn flush(&mut self) -> io::Result<()> {
        self.tls.as_mut().map_or(Ok(()), |tls| tls.flush(&self.stream))
    }
}
