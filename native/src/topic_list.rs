//! Checks a broker's topic list while its bytes arrive, and counts names and their bytes: `protocol/topic_list.py`
//! again, equal to it on every input, errors included. Nothing is made of a name.
//!
//! Rule: each chunk is walked in place, at most three times whatever its bytes are, and no input panics. Python guesses
//! where the last whole field of a chunk ends, because a walk is dear there. Here a walk costs little, but the guesses
//! decide which lists Python refuses, so the walk follows them.

use std::fmt;
use std::ops::Range;

use crate::wire::{self, Value};

const TOPICS_TAG: u8 = 0x12;
const LARGEST_FIELD: u128 = (1 << 29) - 1;
const SLAB_BYTES: usize = 256 * 1024;
/// The limits of Python's walk.
const MOST_FIELDS: usize = SLAB_BYTES / 16;
const MOST_SLOW_FIELDS: usize = SLAB_BYTES / 128;
/// A field that crosses a chunk's end is kept up to this size; a longer one is counted and skipped.
const STRADDLE_BYTES: usize = 4096;

/// Why bytes are no topic list, in the words of `protocol/topic_list.py`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    CutField,
    Undecodable,
    SecondRequestId,
    FieldNumber(u128),
    WireType(u8),
    LongNumber,
    ManyFields,
    ManySlowFields,
}

impl fmt::Display for Refused {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("topic list ")?;
        match self {
            Self::CutField => to.write_str("ends inside a field"),
            Self::Undecodable => to.write_str("cannot be decoded"),
            Self::SecondRequestId => to.write_str("has a second request id"),
            Self::FieldNumber(number) => {
                write!(to, "has field number {number}, expected 1 to {LARGEST_FIELD}")
            }
            Self::WireType(kind) => write!(to, "has wire type {kind}, expected 0, 1, 2 or 5"),
            Self::LongNumber => to.write_str("has a number of more than ten bytes"),
            Self::ManyFields => {
                write!(to, "has more than {MOST_FIELDS} fields in a slab, shorter than any topic's name")
            }
            Self::ManySlowFields => {
                write!(to, "has more than {MOST_SLOW_FIELDS} fields in a slab that are no names")
            }
        }
    }
}

/// What was found so far; final when all bytes were fed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub filtered: bool,
    pub changed: bool,
    pub topics_hash: Vec<u8>,
    pub topics: u64,
    pub name_bytes: u64,
}

/// Fields of one range of bytes, which count once the whole range is known to be sound.
#[derive(Default)]
struct Fields {
    request_id: bool,
    filtered: Option<bool>,
    changed: Option<bool>,
    topics_hash: Option<Range<usize>>,
    topics: u64,
    name_bytes: u64,
}

impl Fields {
    fn take(&mut self, field: wire::Field) {
        match (field.number, field.value) {
            (1, Value::Varint(_)) => self.request_id = true,
            (2, Value::Bytes { start }) => {
                self.topics += 1;
                self.name_bytes += (field.end - start) as u64;
            }
            (3, Value::Varint(value)) => self.filtered = Some(value != 0),
            (4, Value::Bytes { start }) => self.topics_hash = Some(start..field.end),
            (5, Value::Varint(value)) => self.changed = Some(value != 0),
            _ => {}
        }
    }
}

/// A walk over the fields of a chunk, with the numbers that Python's limits speak of.
#[derive(Default)]
struct Walk {
    position: usize,
    fields: usize,
    slow: usize,
    found: Fields,
}

impl Walk {
    fn at(position: usize) -> Self {
        Self { position, ..Self::default() }
    }

    /// Pass a field that is no short name.
    fn pass(&mut self, field: wire::Field) {
        self.found.take(field);
        self.pass_unsound(field.end);
    }

    fn pass_unsound(&mut self, end: usize) {
        self.position = end;
        self.fields += 1;
        self.slow += 1;
    }

    /// Pass names of fewer than 128 bytes, up to `limit` and not beyond it.
    fn pass_short_names(&mut self, chunk: &[u8], limit: usize) {
        let chunk = &chunk[..limit];
        let (mut position, mut names, mut bytes) = (self.position, 0, 0);
        while let Some(&[tag, length]) = chunk.get(position..position + 2) {
            let next = position + 2 + usize::from(length);
            if tag != TOPICS_TAG || length >= 0x80 || next > limit {
                break;
            }
            names += 1;
            bytes += usize::from(length);
            position = next;
        }
        self.position = position;
        self.fields += names;
        self.found.topics += names as u64;
        self.found.name_bytes += bytes as u64;
    }
}

/// Whether the field at `position` is a name that Python's walk passes fast, whole or not.
fn is_short_name(chunk: &[u8], position: usize) -> bool {
    matches!(chunk.get(position..position + 2), Some(&[TOPICS_TAG, length]) if length < 0x80)
}

/// The scanner of one list of `total` bytes.
pub struct TopicListScanner {
    found: Found,
    left: i128,
    skip: u64,
    carry: Vec<u8>,
}

impl TopicListScanner {
    pub fn new(total: u64) -> Self {
        let found = Found { filtered: false, changed: true, topics_hash: Vec::new(), topics: 0, name_bytes: 0 };
        Self { found, left: i128::from(total), skip: 0, carry: Vec::new() }
    }

    pub fn found(&self) -> &Found {
        &self.found
    }

    /// Read the next bytes; an error is final.
    pub fn feed(&mut self, chunk: &[u8]) -> Result<(), Refused> {
        self.left -= chunk.len() as i128;
        let position = self.finish_straddling_field(chunk)?;
        if position < chunk.len() {
            let end = self.read_whole_fields(chunk, position)?;
            if end < chunk.len() {
                self.begin_straddling_field(&chunk[end..])?;
            }
        }
        if self.left == 0 && (!self.carry.is_empty() || self.skip > 0) {
            return Err(Refused::CutField);
        }
        Ok(())
    }

    /// Read the whole fields from `start` on and return where they end.
    fn read_whole_fields(&mut self, chunk: &[u8], start: usize) -> Result<usize, Refused> {
        let first = if self.left == 0 { Some(chunk.len()) } else { last_tag(chunk, start) };
        let mut walk = Walk::at(start);
        if let Some(first) = first.filter(|&first| first > start) {
            let second = last_tag(&chunk[..first], start).filter(|&second| second > start);
            walk = self.walk_to_guess(chunk, start, first, second)?;
        }
        self.walk_to_end(chunk, walk)
    }

    /// Walk to the first guess that is the start of a field, and return the walk from there on.
    ///
    /// If no guess is right, that is the walk from `start`, as far as it has come.
    fn walk_to_guess(
        &mut self,
        chunk: &[u8],
        start: usize,
        first: usize,
        second: Option<usize>,
    ) -> Result<Walk, Refused> {
        let mut walk = Walk::at(start);
        let mut begun = start;
        // The next guess that may still be met.
        let mut ahead = second.unwrap_or(first);
        // Python's walk would have passed the same fields.
        let mut same = true;
        loop {
            walk.pass_short_names(chunk, ahead);
            if walk.position == ahead {
                self.count(&walk.found, chunk)?;
                (walk, begun, same) = (Walk::at(ahead), ahead, true);
                if ahead == first {
                    return Ok(walk);
                }
                ahead = first;
            } else if is_short_name(&chunk[..first], walk.position) {
                // This name goes beyond the guess.
                if ahead == first {
                    break;
                }
                ahead = first;
            } else if let Some(field) = wire::field(&chunk[..first], walk.position) {
                same = same && field.value != Value::Group;
                walk.pass(field);
                if field.end > ahead {
                    ahead = first;
                }
            } else {
                break;
            }
        }
        // Beyond a limit of Python's walk, the walk itself finds which limit came first.
        let within = walk.fields <= MOST_FIELDS && walk.slow <= MOST_SLOW_FIELDS;
        Ok(if same && within { walk } else { Walk::at(begun) })
    }

    /// Walk on to the end of the last whole field, as Python does, and return where that is.
    fn walk_to_end(&mut self, chunk: &[u8], mut walk: Walk) -> Result<usize, Refused> {
        let mut sound = true;
        loop {
            walk.pass_short_names(chunk, chunk.len());
            if walk.fields > MOST_FIELDS {
                return Err(Refused::ManyFields);
            }
            if walk.position == chunk.len() || is_short_name(chunk, walk.position) {
                break;
            }
            if walk.slow >= MOST_SLOW_FIELDS {
                return Err(Refused::ManySlowFields);
            }
            match wire::field(chunk, walk.position) {
                // Both read such a field alike, whatever comes after it.
                Some(field) if field.value != Value::Group => walk.pass(field),
                _ => match field_end(chunk, walk.position)? {
                    // The walk goes on: an error of its own comes first.
                    Some(end) if end <= chunk.len() as u64 => {
                        sound = false;
                        walk.pass_unsound(end as usize);
                    }
                    _ => break,
                },
            }
        }
        if !sound {
            return Err(Refused::Undecodable);
        }
        self.count(&walk.found, chunk)?;
        Ok(walk.position)
    }

    /// Count the fields of a range of `data` that is sound.
    fn count(&mut self, fields: &Fields, data: &[u8]) -> Result<(), Refused> {
        if fields.request_id {
            return Err(Refused::SecondRequestId);
        }
        let found = &mut self.found;
        found.filtered = fields.filtered.unwrap_or(found.filtered);
        found.changed = fields.changed.unwrap_or(found.changed);
        if let Some(hash) = &fields.topics_hash {
            found.topics_hash.clear();
            found.topics_hash.extend_from_slice(&data[hash.clone()]);
        }
        found.topics += fields.topics;
        found.name_bytes = found.name_bytes.saturating_add(fields.name_bytes);
        Ok(())
    }

    fn begin_straddling_field(&mut self, begin: &[u8]) -> Result<(), Refused> {
        if begin.len() > STRADDLE_BYTES {
            return self.pass_over_long_field(begin, begin.len());
        }
        self.carry.extend_from_slice(begin);
        Ok(())
    }

    /// Complete the field that began in an earlier chunk and return where the next one starts.
    fn finish_straddling_field(&mut self, chunk: &[u8]) -> Result<usize, Refused> {
        let position = self.skip_in(chunk);
        if self.carry.is_empty() {
            return Ok(position);
        }
        let carried = self.carry.len();
        let mut joined = std::mem::take(&mut self.carry);
        joined.extend_from_slice(&chunk[..chunk.len().min(STRADDLE_BYTES)]);
        let Some(field) = field_end(&joined, 0)? else {
            self.carry = joined;
            return Ok(chunk.len());
        };
        if field > STRADDLE_BYTES as u64 {
            self.pass_over_long_field(&joined, carried)?;
            return Ok(self.skip_in(chunk));
        }
        let Some(whole) = joined.get(..field as usize) else {
            self.carry = joined;
            return Ok(chunk.len());
        };
        let mut walk = Walk::default();
        walk.found.take(wire::field(whole, 0).ok_or(Refused::Undecodable)?);
        self.count(&walk.found, whole)?;
        Ok(whole.len() - carried)
    }

    /// Skip what is left of a long field and return how many bytes of the chunk that are.
    fn skip_in(&mut self, chunk: &[u8]) -> usize {
        let skipped = self.skip.min(chunk.len() as u64);
        self.skip -= skipped;
        skipped as usize
    }

    /// Skip what follows the first `seen` bytes of the long field that `begin` begins.
    fn pass_over_long_field(&mut self, begin: &[u8], seen: usize) -> Result<(), Refused> {
        // A head has twenty bytes at most, and `begin` has more than that: there is an end.
        let end = field_end(begin, 0)?.ok_or(Refused::Undecodable)?;
        if let (Some(tag), position) = number(begin, 0)? {
            if tag == u128::from(TOPICS_TAG) {
                let (_, position) = number(begin, position)?;
                self.found.topics += 1;
                let name = end.saturating_sub(position as u64);
                self.found.name_bytes = self.found.name_bytes.saturating_add(name);
            }
        }
        self.skip = end.saturating_sub(seen as u64);
        Ok(())
    }
}

/// Return where the byte of a name's tag stands last, from `start` on.
fn last_tag(chunk: &[u8], start: usize) -> Option<usize> {
    const BLOCK: usize = 256;
    let mut end = chunk.len();
    // The search in a block is vectorized forwards only.
    for block in chunk[start..].rchunks(BLOCK) {
        end -= block.len();
        if block.contains(&TOPICS_TAG) {
            return block.iter().rposition(|&byte| byte == TOPICS_TAG).map(|at| end + at);
        }
    }
    None
}

/// Return where the field at `position` ends, as `_field_end` in Python; None if its head is incomplete.
fn field_end(data: &[u8], position: usize) -> Result<Option<u64>, Refused> {
    let (Some(tag), position) = number(data, position)? else {
        return Ok(None);
    };
    if !(1..=LARGEST_FIELD).contains(&(tag >> 3)) {
        return Err(Refused::FieldNumber(tag >> 3));
    }
    match tag & 7 {
        0 => {
            let (value, end) = number(data, position)?;
            Ok(value.map(|_| end as u64))
        }
        1 => Ok(Some(position as u64 + 8)),
        2 => {
            let (length, start) = number(data, position)?;
            let length = length.map(|length| u64::try_from(length).unwrap_or(u64::MAX));
            Ok(length.map(|length| (start as u64).saturating_add(length)))
        }
        5 => Ok(Some(position as u64 + 4)),
        kind => Err(Refused::WireType(kind as u8)),
    }
}

/// Read a number as `_read_varint` in Python: ten bytes at most, no bit dropped; None if it is incomplete.
fn number(data: &[u8], position: usize) -> Result<(Option<u128>, usize), Refused> {
    let mut value = 0_u128;
    for (index, &byte) in data.get(position..).unwrap_or_default().iter().enumerate() {
        value |= u128::from(byte & 0x7F) << (7 * index);
        if byte < 0x80 {
            return Ok((Some(value), position + index + 1));
        }
        if index >= 9 {
            return Err(Refused::LongNumber);
        }
    }
    Ok((None, data.len()))
}

#[cfg(test)]
mod tests;
