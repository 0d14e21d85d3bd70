//! A side of a pair that speaks TLS: what is read from its socket is opened, what is written to it is sealed.
//!
//! The socket's own end says nothing that the peer has not: a FIN without close_notify is an end between two frames, and
//! inside a frame a cut.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::TcpStream;

use super::pair::uninterrupted;
use crate::tls::Session;

/// Reads of ciphertext that bring no data, before others have their turn.
const READS: usize = 4;
/// The smallest read of ciphertext, however little is wanted: the session keeps the rest of a record.
const LEAST_READ: usize = 4 * 1024;
/// What sealing adds to a record of 16 KiB at most.
const RECORD_PLAIN: usize = 16 * 1024;
const ENVELOPE: usize = 64;
/// Errors of the kernel's that no socket has: the session has failed, the stream was cut inside a frame.
pub const FAILED: i32 = libc::EPROTO;
pub const CUT: i32 = libc::ENODATA;

/// Returns what sealing adds to so many bytes at most.
fn envelopes(bytes: usize) -> usize {
    (bytes / RECORD_PLAIN + 1) * ENVELOPE
}

/// Returns what so many plain bytes take at most once they are sealed.
pub fn sealed_bytes(plain: usize) -> usize {
    plain + envelopes(plain)
}

/// How a stream ended whose peer did not say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncated {
    BetweenFrames,
    InsideFrame,
}

/// Where a stream of frames stands: only their sizes are read, and not judged.
#[derive(Default)]
struct Position {
    left: u64,
    size: [u8; 4],
    have: usize,
}

impl Position {
    fn feed(&mut self, mut data: &[u8]) {
        loop {
            let inside = usize::try_from(self.left).unwrap_or(usize::MAX).min(data.len());
            self.left -= inside as u64;
            data = &data[inside..];
            let count = (self.size.len() - self.have).min(data.len());
            if count == 0 {
                return;
            }
            self.size[self.have..self.have + count].copy_from_slice(&data[..count]);
            self.have += count;
            data = &data[count..];
            if self.have == self.size.len() {
                self.have = 0;
                self.left = u64::from(u32::from_be_bytes(self.size));
            }
        }
    }

    fn inside(&self) -> bool {
        self.left > 0 || self.have > 0
    }
}

thread_local! {
    static OUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn failed<T>(_: T) -> io::Error {
    io::Error::from_raw_os_error(FAILED)
}

/// The session of a side, and what its socket did not take.
pub struct Sealed {
    session: Box<Session>,
    /// Sealed bytes, and how many of them have left.
    unsent: Vec<u8>,
    left: usize,
    position: Position,
    /// The last read took all that the socket had.
    emptied: bool,
    /// The socket has told of its end.
    ended: bool,
}

impl Sealed {
    /// Takes a session over, of whose stream `first` was read before.
    pub fn new(session: Box<Session>, first: &[u8]) -> Self {
        let mut position = Position::default();
        position.feed(first);
        Sealed { session, unsent: Vec::new(), left: 0, position, emptied: false, ended: false }
    }

    /// Reads from the socket, and opens; 0 is the end that the peer has told of, or one between two frames.
    pub fn receive(&mut self, socket: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
        for _ in 0..READS {
            let count = self.open(socket, into)?;
            if count > 0 {
                self.position.feed(&into[..count]);
                return Ok(count);
            }
            if self.session.failure().is_some() {
                return Err(io::Error::from_raw_os_error(FAILED));
            }
            match self.truncated() {
                Some(Truncated::InsideFrame) => return Err(io::Error::from_raw_os_error(CUT)),
                Some(Truncated::BetweenFrames) => return Ok(0),
                None if self.session.peer_closed() => return Ok(0),
                None => {}
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn open(&mut self, mut socket: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
        let mut count = 0;
        if self.session.has_more() {
            count = self.session.receive(&[], into);
        } else if !self.is_over() {
            let most = into.len().saturating_sub(self.session.kept()).max(LEAST_READ);
            self.emptied = false;
            let read = |room: &mut [u8]| uninterrupted(|| socket.read(room));
            let read = self.session.receive_from(most, into, read);
            self.emptied = read.as_ref().map_or(true, |(sealed, _)| *sealed < most);
            let (sealed, plain) = read?;
            self.ended = sealed == 0;
            count = plain;
        }
        if self.session.has_own() {
            self.unsent.append(&mut self.session.take_own());
            // What the socket does not take, the other direction sends; of an error the socket tells, too.
            let _ = self.flush(socket);
        }
        Ok(count)
    }

    /// Returns whether nothing is left to receive before the socket says so: no bytes, and no end either.
    pub fn emptied(&self) -> bool {
        self.emptied && !self.session.has_more() && !self.is_over()
    }

    fn is_over(&self) -> bool {
        self.ended || self.session.peer_closed() || self.session.failure().is_some()
    }

    /// Seals bytes, and writes what the socket takes: all of them have left their holder.
    pub fn send(&mut self, mut socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        self.flush(socket)?;
        OUT.with_borrow_mut(|out| {
            out.clear();
            self.session.seal(bytes, out).map_err(failed)?;
            let sent = match uninterrupted(|| socket.write(out)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                sent => sent?,
            };
            self.unsent.extend_from_slice(&out[sent..]);
            Ok(bytes.len())
        })
    }

    /// Writes what is sealed; fails like a write if the socket does not take all of it.
    pub fn flush(&mut self, mut socket: &TcpStream) -> io::Result<()> {
        while self.unsent() > 0 {
            self.left += uninterrupted(|| socket.write(&self.unsent[self.left..]))?;
        }
        self.unsent = Vec::new();
        self.left = 0;
        Ok(())
    }

    /// Tells the peer that no more is sent.
    pub fn close(&mut self, socket: &TcpStream) {
        // A session that has failed tells nothing any more, and of an error the socket tells.
        let _ = self.session.close_notify(&mut self.unsent);
        let _ = self.flush(socket);
    }

    /// Drops what is sealed: the socket is gone.
    pub fn drop_unsent(&mut self) {
        (self.unsent, self.left) = (Vec::new(), 0);
    }

    /// Returns the sealed bytes that the socket has still to take.
    pub fn unsent(&self) -> usize {
        self.unsent.len() - self.left
    }

    /// Returns the memory of what is sealed: nothing of it is free before the last byte has left.
    pub fn unsent_memory(&self) -> usize {
        self.unsent.capacity()
    }

    /// Returns how many plain bytes fit into a room for sealed ones.
    pub fn room(&self, sealed: usize) -> usize {
        if sealed == 0 || sealed == usize::MAX {
            return sealed;
        }
        sealed.saturating_sub(envelopes(sealed)).max(1)
    }

    /// Returns why the session has failed.
    pub fn failure(&self) -> Option<String> {
        self.session.failure().map(|failure| failure.text.clone())
    }

    /// Returns whether what was read ends inside a frame.
    pub fn inside_frame(&self) -> bool {
        self.position.inside()
    }

    /// Returns how the stream ended if the peer did not say so.
    pub fn truncated(&self) -> Option<Truncated> {
        if !self.ended || self.session.peer_closed() {
            return None;
        }
        Some(if self.position.inside() { Truncated::InsideFrame } else { Truncated::BetweenFrames })
    }
}
