//! Scans what a client sends to its broker for producers and their messages.
//!
//! Only the first bytes of a frame are read: 20 of most, 64 of a SEND, 640 of a PRODUCER. The usual order is the type,
//! then one field that fills the command: no second type can be there. Any other order is decoded as protobuf does, the
//! last value counts, if it has 4 KiB at most and few fields, and else counts as messages of an unknown producer. A head
//! that is split between two reads is kept until it is whole. Sizes that make no sense end the scan for good.

/// Both sizes, the tag of BaseCommand.type and its value: all known encoders put these first.
const SCANNED_BYTES: usize = 10;
const SIZES_BYTES: usize = 8;
/// Enough for the tag and the size of the field behind the type, each of five bytes.
const SOLE_BYTES: usize = 20;
/// Enough for the producer, the sequence and the number of messages of a SEND, each of ten bytes.
const SHORT_BYTES: usize = 64;
/// Enough for the longest topic that is told, and the producer behind that.
const PRODUCER_BYTES: usize = 640;
/// A longer command in an unusual order is not decoded.
pub const MOST_DECODED: usize = 4096;
/// Unusual orders may bring a field for so many bytes of their frames, and so many at once: Python's scanner takes
/// a microsecond for each. Beyond that a command is not decoded.
pub const BYTES_A_FIELD: u64 = 16;
pub const MOST_FIELDS: u64 = 256;
/// So many fields may stand behind those that are told in the usual order; PRODUCER has eleven.
pub const MOST_BEHIND: usize = 16;
/// A longer topic is not told.
pub const MOST_TOPIC_BYTES: usize = 512;

const SUBSCRIBE: u8 = 4;
const PRODUCER: u8 = 5;
const SEND: u8 = 6;
const CLOSE_PRODUCER: u8 = 15;

/// What is found in the stream, in its order.
pub trait Sink {
    /// A SEND begins, of `frame_bytes` on the wire; None is a producer that cannot be read.
    fn send(&mut self, producer: Option<u64>, messages: u64, frame_bytes: u64);
    /// A producer is closed.
    fn closed(&mut self, producer: u64);
    /// A consumer subscribes.
    fn subscribed(&mut self);
    /// Sizes that make no sense have ended the scan.
    fn ended(&mut self);
}

/// A PRODUCER; what cannot be read of one is None, a topic that is too long, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Producer {
    pub id: Option<u64>,
    pub topic: Option<Vec<u8>>,
}

/// A PRODUCER that was found. Its frame begins at `start` of the read, or began before (then 0); the scan of the read
/// goes on at `resume`, which may lie inside that frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    pub producer: Producer,
    pub start: usize,
    pub resume: usize,
}

enum Seen {
    /// As many bytes of the frame are wanted.
    Need(usize),
    Nonsense,
    Nothing,
    Subscribed,
    Send(Option<u64>, u64),
    Closed(u64),
    Producer(Producer),
}

/// Reads a varint; None if it is cut off or too long. Bits above 64 are dropped, as protobuf does.
fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for index in 0..10 {
        let byte = *bytes.get(*at + index)?;
        value |= u64::from(byte & 0x7F) << (7 * index);
        if byte < 0x80 {
            *at += index + 1;
            return Some(value);
        }
    }
    None
}

fn tagged(bytes: &[u8], at: &mut usize, tag: u8) -> Option<u64> {
    if *bytes.get(*at)? != tag {
        return None;
    }
    *at += 1;
    varint(bytes, at)
}

/// A batch has a byte for each of its messages at least: no client makes up more.
fn messages(value: u64, frame_bytes: u64) -> u64 {
    u64::try_from(value as u32 as i32).unwrap_or(0).clamp(1, frame_bytes)
}

/// Returns whether one field fills the command behind its type, or nothing is there: no second type can be.
fn is_sole(head: &[u8], end: usize) -> bool {
    let mut at = SCANNED_BYTES;
    if at == end {
        return true;
    }
    let tag = varint(head, &mut at).unwrap_or(0);
    let size = varint(head, &mut at);
    tag & 7 == 2 && (8..1 << 32).contains(&tag) && size.is_some() && size == end.checked_sub(at).map(|rest| rest as u64)
}

/// Reads the fields up to the end of a part: all of higher numbers than `told`, so that none of those comes again.
fn behind(head: &[u8], mut at: usize, end: usize, told: u64) -> Option<()> {
    for _ in 0..MOST_BEHIND {
        if at >= end {
            break;
        }
        let tag = varint(head, &mut at).filter(|tag| *tag < 1 << 32 && tag >> 3 > told)?;
        let size = match tag & 7 {
            0 => varint(head, &mut at).map(|_| 0)?,
            1 => 8,
            2 => varint(head, &mut at)?,
            5 => 4,
            _ => return None,
        };
        // The last may end behind the head.
        at = at.checked_add(usize::try_from(size).ok()?)?;
    }
    (at == end).then_some(())
}

/// Reads the usual order of a SEND: producer, sequence, and maybe the number of messages.
fn usual_send(head: &[u8], end: usize, frame_bytes: u64) -> Option<Seen> {
    let mut at = SCANNED_BYTES;
    let size = tagged(head, &mut at, 0x32)?;
    if size != (end.checked_sub(at)?) as u64 {
        return None;
    }
    let producer = tagged(head, &mut at, 0x08)?;
    tagged(head, &mut at, 0x10)?;
    let mut count = 1;
    if head.get(at) == Some(&0x18) {
        count = tagged(head, &mut at, 0x18)?;
    }
    behind(head, at, end, 3)?;
    Some(Seen::Send(Some(producer), messages(count, frame_bytes)))
}

fn usual_close(head: &[u8], end: usize) -> Option<Seen> {
    let mut at = SCANNED_BYTES;
    let size = tagged(head, &mut at, 0x7A)?;
    if size != (end.checked_sub(at)?) as u64 {
        return None;
    }
    let producer = tagged(head, &mut at, 0x08)?;
    behind(head, at, end, 1)?;
    Some(Seen::Closed(producer))
}

fn usual_producer(head: &[u8], end: usize) -> Option<Seen> {
    let mut at = SCANNED_BYTES;
    let size = tagged(head, &mut at, 0x2A)?;
    if size != (end.checked_sub(at)?) as u64 {
        return None;
    }
    let length = usize::try_from(tagged(head, &mut at, 0x0A)?).ok()?;
    if length > MOST_TOPIC_BYTES {
        return None;
    }
    let topic = head.get(at..at + length)?.to_vec();
    at += length;
    let id = tagged(head, &mut at, 0x10)?;
    // A longer one is not waited for to its end: a client that repeats the topic there could have named any topic.
    if end <= SIZES_BYTES + MOST_DECODED {
        behind(head, at, end, 2)?;
    }
    Some(Seen::Producer(Producer { id: Some(id), topic: Some(topic) }))
}

/// The fields of a command or of a part of it, in any order.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Other,
}

impl<'a> Fields<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        Fields { bytes, at: 0 }
    }

    /// Returns the next field; an error if the bytes are none, and for a group, which no command has.
    fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, ()> {
        if self.at >= self.bytes.len() {
            return Ok(None);
        }
        let tag = varint(self.bytes, &mut self.at).filter(|tag| (8..1 << 32).contains(tag)).ok_or(())?;
        let value = match tag & 7 {
            0 => Value::Number(varint(self.bytes, &mut self.at).ok_or(())?),
            1 => self.take(8).map(|_| Value::Other)?,
            2 => {
                let size = varint(self.bytes, &mut self.at).ok_or(())?;
                Value::Bytes(self.take(usize::try_from(size).map_err(|_| ())?)?)
            }
            5 => self.take(4).map(|_| Value::Other)?,
            _ => return Err(()),
        };
        Ok(Some((tag >> 3, value)))
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], ()> {
        let end = self.at.checked_add(count).ok_or(())?;
        let taken = self.bytes.get(self.at..end).ok_or(())?;
        self.at = end;
        Ok(taken)
    }
}

/// What is wanted of a command, the last value of each field, as protobuf has it.
#[derive(Default)]
struct Decoded {
    kind: Option<u32>,
    /// Whether there are two types that differ.
    two_kinds: bool,
    /// The producers of PRODUCER, SEND and CLOSE_PRODUCER.
    ids: [Option<u64>; 3],
    topic: Option<Vec<u8>>,
    count: u64,
    /// How many more fields may be read.
    left: u64,
}

impl Decoded {
    fn read(&mut self, command: &[u8]) -> Result<(), ()> {
        let mut fields = Fields::of(command);
        while let Some((number, value)) = fields.next()? {
            self.left = self.left.checked_sub(1).ok_or(())?;
            match (number, value) {
                // 32 bits of it count, as protobuf does.
                (1, Value::Number(kind)) => {
                    let before = self.kind.replace(kind as u32);
                    self.two_kinds |= before.is_some() && before != self.kind;
                }
                (5, Value::Bytes(part)) => self.part(part, 0)?,
                (6, Value::Bytes(part)) => self.part(part, 1)?,
                (15, Value::Bytes(part)) => self.part(part, 2)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn part(&mut self, part: &[u8], which: usize) -> Result<(), ()> {
        let mut fields = Fields::of(part);
        while let Some((number, value)) = fields.next()? {
            self.left = self.left.checked_sub(1).ok_or(())?;
            match (which, number, value) {
                (0, 2, Value::Number(id)) | (1 | 2, 1, Value::Number(id)) => self.ids[which] = Some(id),
                (0, 1, Value::Bytes(topic)) => {
                    self.topic = (topic.len() <= MOST_TOPIC_BYTES).then(|| topic.to_vec());
                }
                (1, 3, Value::Number(count)) => self.count = count,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Decodes a command; `fields_read`: fields of unusual orders that their frames' bytes have not paid for yet.
fn decode(command: &[u8], frame_bytes: u64, fields_read: &mut u64) -> Seen {
    let before = fields_read.saturating_sub(frame_bytes / BYTES_A_FIELD);
    let mut found = Decoded { count: 1, left: MOST_FIELDS - before, ..Decoded::default() };
    let read = found.read(command);
    *fields_read = MOST_FIELDS - found.left;
    if read.is_err() {
        return Seen::Send(None, 1);
    }
    let [producer, send, close] = found.ids;
    match found.kind.and_then(|kind| u8::try_from(kind).ok()).unwrap_or(0) {
        SUBSCRIBE => Seen::Subscribed,
        PRODUCER => Seen::Producer(Producer { id: producer, topic: found.topic }),
        SEND => Seen::Send(send, messages(found.count, frame_bytes)),
        CLOSE_PRODUCER => close.map_or(Seen::Nothing, Seen::Closed),
        // A broker that does not know the last type takes the one before.
        _ if found.two_kinds => Seen::Send(None, 1),
        _ => Seen::Nothing,
    }
}

/// Looks at the first bytes of a frame; returns what it is, and its size on the wire.
#[inline]
fn inspect(head: &[u8], fields_read: &mut u64) -> (Seen, u64) {
    let Some(&[a, b, c, d, e, f, g, h, tag, kind]) = head.first_chunk::<SCANNED_BYTES>() else {
        return (Seen::Need(SCANNED_BYTES), 0);
    };
    // Signed, as upstream reads them: above 2 GiB they are negative and fit no command.
    let total = i64::from(i32::from_be_bytes([a, b, c, d]));
    let command = i64::from(i32::from_be_bytes([e, f, g, h]));
    if command < 2 || command > total - 4 {
        return (Seen::Nonsense, 0);
    }
    let (frame_bytes, command) = (total as u64 + 4, command as usize);
    (classify(head, (tag, kind), command, frame_bytes, fields_read), frame_bytes)
}

#[inline]
fn classify(head: &[u8], (tag, kind): (u8, u8), command: usize, frame_bytes: u64, fields_read: &mut u64) -> Seen {
    let end = SIZES_BYTES + command;
    let usual = tag == 0x08 && kind < 0x80;
    let wanted = match kind {
        SEND | CLOSE_PRODUCER if usual => end.min(SHORT_BYTES),
        PRODUCER if usual => end.min(PRODUCER_BYTES),
        _ if usual => end.min(SOLE_BYTES),
        _ => SCANNED_BYTES,
    };
    if head.len() < wanted {
        return Seen::Need(wanted);
    }
    let read = match kind {
        SEND if usual => usual_send(&head[..wanted], end, frame_bytes),
        CLOSE_PRODUCER if usual => usual_close(&head[..wanted], end),
        PRODUCER if usual => usual_producer(&head[..wanted], end),
        SUBSCRIBE if usual && is_sole(&head[..wanted], end) => Some(Seen::Subscribed),
        _ if usual && is_sole(&head[..wanted], end) => Some(Seen::Nothing),
        _ => None,
    };
    match read {
        Some(seen) => seen,
        None if command <= MOST_DECODED && head.len() < end => Seen::Need(end),
        None if command <= MOST_DECODED => decode(&head[SIZES_BYTES..end], frame_bytes, fields_read),
        None if !usual || !is_sole(&head[..wanted], end) => Seen::Send(None, 1),
        None if kind == PRODUCER => Seen::Producer(Producer::default()),
        None if kind == CLOSE_PRODUCER => Seen::Nothing,
        None => Seen::Send(None, 1),
    }
}

/// Scans a client's stream from its first byte, in reads of any size.
#[derive(Clone, Debug, Default)]
pub struct ProducerScanner {
    /// Bytes of the frame under way that are still to come.
    left: u64,
    /// The first bytes of a frame of which more are wanted; no memory while there are none.
    head: Vec<u8>,
    wanted: usize,
    ended: bool,
    fields_read: u64,
}

impl ProducerScanner {
    /// Begins at the first byte of a frame.
    pub fn new() -> Self {
        ProducerScanner::default()
    }

    /// Returns whether sizes that make no sense have ended the scan.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Returns how many bytes may pass unseen; endless after the end of the scan.
    pub fn left(&self) -> u64 {
        if self.ended {
            u64::MAX
        } else {
            self.left
        }
    }

    /// Returns whether the last byte was the last of its frame.
    pub fn between_frames(&self) -> bool {
        self.left == 0 && self.head.is_empty()
    }

    /// Returns how many bytes may be read that are surely of the frame under way, or of the next; at least one.
    pub fn room(&self) -> u64 {
        if self.left > 0 {
            return self.left;
        }
        let have = self.head.len() as u64;
        let Some(&size) = self.head.first_chunk::<4>() else {
            return 4 - have;
        };
        let frame_bytes = i64::from(i32::from_be_bytes(size)) + 4;
        u64::try_from(frame_bytes).unwrap_or(0).max(SCANNED_BYTES as u64).saturating_sub(have).max(1)
    }

    /// Counts bytes of the frame under way that passed unseen; `count` must be at most `left()`.
    pub fn skip(&mut self, count: u64) {
        debug_assert!(count <= self.left());
        self.left = self.left.saturating_sub(count);
    }

    /// Scans the next bytes, up to the next PRODUCER: the rest of the read is to be scanned from `resume` on.
    #[inline]
    pub fn scan(&mut self, data: &[u8], sink: &mut impl Sink) -> Option<Stop> {
        let mut at = 0;
        loop {
            if self.ended || at >= data.len() {
                return None;
            }
            let rest = &data[at..];
            if self.left > 0 {
                let skipped = self.left.min(rest.len() as u64);
                self.left -= skipped;
                at += skipped as usize;
                continue;
            }
            if !self.head.is_empty() {
                let more = rest.len().min(self.wanted - self.head.len());
                self.head.extend_from_slice(&rest[..more]);
                at += more;
                if self.head.len() < self.wanted {
                    return None;
                }
                let (seen, frame_bytes) = inspect(&self.head, &mut self.fields_read);
                if let Seen::Need(count) = seen {
                    self.wanted = count;
                    continue;
                }
                // A frame is at least as long as what is wanted of it.
                self.left = frame_bytes.saturating_sub(self.head.len() as u64);
                self.head = Vec::new();
                if let Some(producer) = self.tell(seen, frame_bytes, sink) {
                    return Some(Stop { producer, start: 0, resume: at });
                }
                continue;
            }
            let (seen, frame_bytes) = inspect(rest, &mut self.fields_read);
            if let Seen::Need(count) = seen {
                self.head.reserve_exact(count);
                self.head.extend_from_slice(rest);
                self.wanted = count;
                return None;
            }
            self.left = frame_bytes;
            if let Some(producer) = self.tell(seen, frame_bytes, sink) {
                return Some(Stop { producer, start: at, resume: at });
            }
        }
    }

    #[inline]
    fn tell(&mut self, seen: Seen, frame_bytes: u64, sink: &mut impl Sink) -> Option<Producer> {
        match seen {
            Seen::Send(producer, messages) => sink.send(producer, messages, frame_bytes),
            Seen::Closed(producer) => sink.closed(producer),
            Seen::Subscribed => sink.subscribed(),
            Seen::Producer(producer) => return Some(producer),
            Seen::Nonsense => {
                self.ended = true;
                self.left = 0;
                sink.ended();
            }
            Seen::Nothing | Seen::Need(_) => {}
        }
        None
    }
}
