//! Bytes that were read and have not left: what the receiver did not take, and what waits for an answer.

use std::io;

/// At most one read (or the first bytes of a pair), in an allocation of exactly its size.
///
/// The bytes before the gate may leave at once; those from the gate on wait until it opens.
#[derive(Default)]
pub struct Held {
    bytes: Option<Box<[u8]>>,
    start: usize,
    gate: usize,
}

/// Allocates exactly `count` bytes. Fails instead of ending the process if there is no memory: one pair ends then, not
/// the proxy.
fn room_for(count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(count).map_err(|_| io::Error::from_raw_os_error(libc::ENOMEM))?;
    Ok(bytes)
}

impl Held {
    /// Keeps a copy of `bytes`, of which the first `gate` may leave at once. Nothing may be held before.
    pub fn keep(&mut self, bytes: &[u8], gate: usize) -> io::Result<()> {
        debug_assert!(self.is_empty() && gate <= bytes.len());
        if bytes.is_empty() {
            return Ok(());
        }
        let mut copy = room_for(bytes.len())?;
        copy.extend_from_slice(bytes);
        *self = Held { bytes: Some(copy.into_boxed_slice()), start: 0, gate };
        Ok(())
    }

    /// Keeps `count` bytes that `write` writes; all of them may leave at once.
    pub fn keep_from(&mut self, count: usize, write: impl FnOnce(&mut [u8]) -> io::Result<()>) -> io::Result<()> {
        debug_assert!(self.is_empty());
        let mut bytes = room_for(count)?;
        bytes.resize(count, 0);
        write(&mut bytes)?;
        *self = Held { bytes: Some(bytes.into_boxed_slice()), start: 0, gate: count };
        Ok(())
    }

    /// Returns how many bytes are held, waiting ones included.
    pub fn len(&self) -> usize {
        self.bytes.as_ref().map_or(0, |bytes| bytes.len() - self.start)
    }

    /// Returns the memory of what is held: nothing of it is free before the last byte has left.
    pub fn kept(&self) -> usize {
        self.bytes.as_ref().map_or(0, |bytes| bytes.len())
    }

    /// Returns whether nothing is held, and no memory either.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_none()
    }

    /// Returns the bytes that may leave now.
    pub fn leaving(&self) -> &[u8] {
        self.bytes.as_ref().map_or(&[], |bytes| &bytes[self.start..self.gate])
    }

    /// Returns whether bytes wait behind the gate.
    pub fn waits(&self) -> bool {
        self.bytes.as_ref().is_some_and(|bytes| self.gate < bytes.len())
    }

    /// Returns the bytes that wait behind the gate.
    pub fn waiting(&self) -> &[u8] {
        self.bytes.as_ref().map_or(&[], |bytes| &bytes[self.gate..])
    }

    /// Moves the gate behind the first `count` of the bytes that wait.
    pub fn advance_gate(&mut self, count: usize) {
        self.gate += count;
        debug_assert!(self.bytes.as_ref().is_some_and(|bytes| self.gate <= bytes.len()));
    }

    /// Records that the receiver took the first `count` of the leaving bytes; frees the memory when all have left.
    pub fn left(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.gate);
        if self.bytes.as_ref().is_some_and(|bytes| bytes.len() == self.start) {
            *self = Held::default();
        }
    }

    /// Lets the bytes that wait leave, too.
    pub fn open_gate(&mut self) {
        self.gate = self.bytes.as_ref().map_or(0, |bytes| bytes.len());
    }

    /// Drops the bytes that wait; those that may leave are kept.
    pub fn drop_waiting(&mut self) {
        if self.start == self.gate {
            self.clear();
        } else if let Some(bytes) = self.bytes.take() {
            self.bytes = Some(bytes[..self.gate].into());
        }
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        *self = Held::default();
    }
}
