//! Frames and the handful of Pulsar commands that the ladder speaks, written and read by hand. Reading is
//! tolerant of a frame whose end is not there: only the first bytes of a large one are kept. No I/O.

pub const CONNECT: u64 = 2;
pub const CONNECTED: u64 = 3;
pub const SEND: u64 = 6;
pub const SEND_RECEIPT: u64 = 7;
pub const MESSAGE: u64 = 9;
pub const FLOW: u64 = 11;
pub const ERROR: u64 = 14;
pub const PING: u64 = 18;
pub const PONG: u64 = 19;
pub const PARTITIONED_METADATA: u64 = 21;
pub const PARTITIONED_METADATA_RESPONSE: u64 = 22;
pub const LOOKUP: u64 = 23;
pub const LOOKUP_RESPONSE: u64 = 24;
pub const GET_TOPICS: u64 = 32;
pub const GET_TOPICS_RESPONSE: u64 = 33;
pub const GET_SCHEMA: u64 = 34;
pub const GET_SCHEMA_RESPONSE: u64 = 35;
/// No commands of Pulsar: a scenario asks the fake broker what it has been asked, and is told.
pub const COUNTERS: u64 = 9001;
pub const COUNTERS_RESPONSE: u64 = 9002;

pub const PROTOCOL_VERSION: u64 = 21;
pub const MAX_MESSAGE_BYTES: u64 = 5_242_880;

/// How much of a frame is kept for parsing when it arrives in pieces, unless somebody needs more.
const HEAD_BYTES: usize = 512;

/// Growing protobuf text: fields are appended in the order of the calls.
#[derive(Default, Clone)]
pub struct Message(pub Vec<u8>);

impl Message {
    pub fn new() -> Message {
        Message::default()
    }

    pub fn varint(mut self, field: u64, value: u64) -> Message {
        put_varint(&mut self.0, field << 3);
        put_varint(&mut self.0, value);
        self
    }

    pub fn bytes(mut self, field: u64, value: &[u8]) -> Message {
        put_varint(&mut self.0, field << 3 | 2);
        put_varint(&mut self.0, value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    pub fn text(self, field: u64, value: &str) -> Message {
        self.bytes(field, value.as_bytes())
    }
}

pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn take_varint(data: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = data.split_first()?;
        *data = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Frame a command: `kind` is the enum value, and also the number of the field that holds the message.
pub fn frame(kind: u64, message: &Message) -> Vec<u8> {
    let mut out = head(kind, message, 0);
    debug_assert!(out.len() >= 8);
    out.shrink_to_fit();
    out
}

/// The beginning of a frame whose message goes on with `more` bytes that the caller sends from elsewhere.
pub fn head(kind: u64, start: &Message, more: usize) -> Vec<u8> {
    let mut command = Message::new().varint(1, kind).0;
    put_varint(&mut command, kind << 3 | 2);
    put_varint(&mut command, (start.0.len() + more) as u64);
    command.extend_from_slice(&start.0);
    let command_bytes = (command.len() + more) as u32;
    let mut out = Vec::with_capacity(command.len() + 8);
    out.extend_from_slice(&(command_bytes + 4).to_be_bytes());
    out.extend_from_slice(&command_bytes.to_be_bytes());
    out.extend_from_slice(&command);
    out
}

#[derive(Debug, PartialEq)]
pub enum Value<'a> {
    Number(u64),
    /// A length-delimited field; shorter than announced where the kept bytes end.
    Bytes(&'a [u8]),
}

/// The fields of a message, as far as the bytes reach.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let key = take_varint(&mut self.0)?;
        match key & 7 {
            0 => Some((key >> 3, Value::Number(take_varint(&mut self.0)?))),
            2 => {
                let length = take_varint(&mut self.0)? as usize;
                let (value, rest) = self.0.split_at(length.min(self.0.len()));
                self.0 = rest;
                Some((key >> 3, Value::Bytes(value)))
            }
            _ => None,
        }
    }
}

/// One frame: its size on the wire, length word included, and its first bytes behind that word.
#[derive(Debug, PartialEq)]
pub struct Frame<'a> {
    pub wire_bytes: usize,
    pub head: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The command's enum value and the bytes of its message; nothing if this is no Pulsar command.
    pub fn command(&self) -> Option<(u64, &'a [u8])> {
        let size = u32::from_be_bytes(self.head.get(..4)?.try_into().ok()?) as usize;
        let command = &self.head[4..self.head.len().min(4 + size)];
        let mut fields = Fields(command);
        let Some((1, Value::Number(kind))) = fields.next() else { return None };
        let message = fields.find_map(|(field, value)| match value {
            Value::Bytes(bytes) if field == kind => Some(bytes),
            _ => None,
        });
        Some((kind, message.unwrap_or(&[])))
    }
}

pub fn number(message: &[u8], wanted: u64) -> Option<u64> {
    Fields(message).find_map(|(field, value)| match value {
        Value::Number(number) if field == wanted => Some(number),
        _ => None,
    })
}

pub fn bytes(message: &[u8], wanted: u64) -> Option<&[u8]> {
    Fields(message).find_map(|(field, value)| match value {
        Value::Bytes(bytes) if field == wanted => Some(bytes),
        _ => None,
    })
}

/// Finds the frames in a stream that is read in pieces, keeping no more of each than its first bytes.
pub struct Scanner {
    kept: Vec<u8>,
    most: usize,
    wire_bytes: usize,
    missing: usize,
}

impl Scanner {
    pub fn new() -> Scanner {
        Scanner::keeping(HEAD_BYTES)
    }

    /// Keep so many bytes of a frame that arrives in pieces.
    pub fn keeping(most: usize) -> Scanner {
        Scanner { kept: Vec::new(), most, wire_bytes: 0, missing: 0 }
    }

    /// Consume `data` up to the end of the next frame and return that frame, or consume all of it.
    pub fn next<'a, 'd: 'a>(&'a mut self, data: &mut &'d [u8]) -> Option<Frame<'a>> {
        if self.missing == 0 {
            self.kept.clear();
            self.wire_bytes = 0;
            if let Some(frame) = whole_frame(data) {
                return Some(frame);
            }
        }
        if self.wire_bytes == 0 && !self.take_length(data) {
            return None;
        }
        let take = self.missing.min(data.len());
        let keep = take.min(self.most.saturating_sub(self.kept.len() - 4));
        self.kept.extend_from_slice(&data[..keep]);
        self.missing -= take;
        *data = &data[take..];
        if self.missing > 0 {
            return None;
        }
        Some(Frame { wire_bytes: self.wire_bytes, head: &self.kept[4..] })
    }

    /// Collect the length word; `missing` stays 1 while it is incomplete, so that the state is kept.
    fn take_length(&mut self, data: &mut &[u8]) -> bool {
        let take = (4 - self.kept.len()).min(data.len());
        self.kept.extend_from_slice(&data[..take]);
        *data = &data[take..];
        if self.kept.len() < 4 {
            self.missing = usize::from(!self.kept.is_empty());
            return false;
        }
        let size = u32::from_be_bytes([self.kept[0], self.kept[1], self.kept[2], self.kept[3]]) as usize;
        self.wire_bytes = size + 4;
        self.missing = size;
        true
    }
}

/// The usual case: a frame that lies in the data as a whole is not copied.
fn whole_frame<'d>(data: &mut &'d [u8]) -> Option<Frame<'d>> {
    let length: [u8; 4] = data.get(..4)?.try_into().ok()?;
    let wire_bytes = u32::from_be_bytes(length) as usize + 4;
    let whole = data.get(4..wire_bytes)?;
    *data = &data[wire_bytes..];
    Some(Frame { wire_bytes, head: whole })
}

/// CRC32C, bit by bit: used on a few megabytes before anything is measured.
pub fn crc32c(data: &[u8]) -> u32 {
    !data.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ (0x82f6_3b78 & 0u32.wrapping_sub(crc & 1)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes_for_pieces(stream: &[u8], piece: usize) -> Vec<(usize, u64)> {
        let mut scanner = Scanner::new();
        let mut found = Vec::new();
        for chunk in stream.chunks(piece) {
            let mut data = chunk;
            while let Some(frame) = scanner.next(&mut data) {
                found.push((frame.wire_bytes, frame.command().unwrap().0));
            }
        }
        found
    }

    #[test]
    fn any_split_of_the_bytes_gives_the_same_frames() {
        let mut stream = frame(PING, &Message::new());
        stream.extend(frame(GET_TOPICS_RESPONSE, &Message::new().bytes(2, &[b'x'; 3000])));
        stream.extend(frame(PONG, &Message::new()));
        let whole = sizes_for_pieces(&stream, stream.len());
        assert_eq!(whole.len(), 3);
        for piece in [1, 2, 3, 5, 7, 511, 513, 1000] {
            assert_eq!(sizes_for_pieces(&stream, piece), whole, "pieces of {piece} bytes");
        }
    }

    #[test]
    fn a_command_names_its_kind_and_its_fields() {
        let bytes_of = frame(LOOKUP, &Message::new().text(1, "t").varint(2, 300));
        let mut data = &bytes_of[..];
        let mut scanner = Scanner::new();
        let (kind, message) = scanner.next(&mut data).unwrap().command().unwrap();
        assert_eq!((kind, number(message, 2), bytes(message, 1)), (LOOKUP, Some(300), Some(&b"t"[..])));
    }

    #[test]
    fn fields_behind_a_long_name_are_kept_if_that_is_asked_for() {
        let lookup = frame(LOOKUP, &Message::new().bytes(1, &[b'x'; 3994]).varint(2, 300));
        for (mut scanner, id) in [(Scanner::new(), None), (Scanner::keeping(8192), Some(300))] {
            let (mut begin, mut end) = lookup.split_at(1000);
            assert_eq!(scanner.next(&mut begin), None);
            assert_eq!(number(scanner.next(&mut end).unwrap().command().unwrap().1, 2), id);
        }
    }

    #[test]
    fn a_message_without_fields_is_a_command_too() {
        let ping = frame(PING, &Message::new());
        assert_eq!(Scanner::new().next(&mut &ping[..]).unwrap().command(), Some((PING, &[][..])));
    }

    #[test]
    fn crc32c_has_the_published_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
