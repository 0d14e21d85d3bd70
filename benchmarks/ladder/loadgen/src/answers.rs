//! The small answers of the fake broker, field by field. No state, no I/O.

use crate::wire::{self, Message};

const FLOOD_PAYLOAD_BYTES: usize = 64 * 1024;

/// A MESSAGE frame whose payload nobody looks at.
pub fn flood_frame() -> Vec<u8> {
    let message_id = Message::new().varint(1, 1).varint(2, 1);
    let command = Message::new().varint(1, 0).bytes(2, &message_id.0);
    let mut bytes = wire::head(wire::MESSAGE, &command, 0);
    let total = (bytes.len() - 4 + FLOOD_PAYLOAD_BYTES) as u32;
    bytes[..4].copy_from_slice(&total.to_be_bytes());
    bytes.resize(bytes.len() + FLOOD_PAYLOAD_BYTES, b'f');
    bytes
}

/// Many of the smallest frames that there are, 13 bytes each.
pub fn pongs() -> Vec<u8> {
    let frame = wire::frame(wire::PONG, &Message::new());
    frame.repeat(FLOOD_PAYLOAD_BYTES / frame.len())
}

pub fn connected() -> Message {
    let flags = Message::new().varint(1, 1).varint(2, 1).varint(3, 1).varint(4, 1).varint(5, 1).varint(6, 1);
    Message::new()
        .text(1, "fake-broker")
        .varint(2, wire::PROTOCOL_VERSION)
        .varint(3, wire::MAX_MESSAGE_BYTES)
        .bytes(4, &flags.0)
}

/// The bytes of the one schema that the fake broker has for every topic: as many of one value as are not looked at.
pub const SCHEMA_BYTES: usize = 1024 * 1024;

/// How the answer to a GET_SCHEMA begins; what follows is the schema's data.
pub fn schema_head(id: u64) -> Vec<u8> {
    let named = Message::new().text(1, "s").varint(4, 1);
    let mut schema = named.0;
    wire::put_varint(&mut schema, 3 << 3 | 2);
    wire::put_varint(&mut schema, SCHEMA_BYTES as u64);
    let mut answer = Message::new().varint(1, id).0;
    wire::put_varint(&mut answer, 4 << 3 | 2);
    wire::put_varint(&mut answer, (schema.len() + SCHEMA_BYTES) as u64);
    answer.extend_from_slice(&schema);
    wire::head(wire::GET_SCHEMA_RESPONSE, &Message(answer), SCHEMA_BYTES)
}

/// What acknowledges a SEND: its producer, its sequence number, and the place in a ledger that is asked for.
pub fn receipt(send: &[u8]) -> Message {
    let number = |field| wire::number(send, field).unwrap_or(0);
    let message_id = Message::new().varint(1, 1).varint(2, number(2));
    Message::new().varint(1, number(1)).varint(2, number(2)).bytes(3, &message_id.0)
}

const CONNECT: u64 = 1;

pub fn looked_up(url: &str, id: u64) -> Message {
    Message::new().text(1, url).varint(3, CONNECT).varint(4, id).varint(5, 1).varint(8, 0)
}
