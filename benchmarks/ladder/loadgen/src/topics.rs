//! The topic lists that the fake broker answers with: computed once, shared by all answers.

use std::collections::HashMap;
use std::rc::Rc;

use crate::wire::{self, crc32c, put_varint, Message};

const TOPICS: u64 = 2 << 3 | 2;

/// A name of exactly `bytes` bytes, unless its prefix and number alone are longer.
fn topic_name(namespace: &str, index: usize, bytes: usize) -> String {
    let start = format!("persistent://{namespace}/topic-{index:06}-");
    let padding = bytes.saturating_sub(start.len());
    start + &"x".repeat(padding)
}

/// All fields of an answer but the request id, which stands before them on the wire.
fn encode(namespace: &str, topics: usize, name_bytes: usize) -> Rc<[u8]> {
    let names: Vec<String> = (0..topics).map(|index| topic_name(namespace, index, name_bytes)).collect();
    let mut body = Vec::new();
    for name in &names {
        body.push(TOPICS as u8);
        put_varint(&mut body, name.len() as u64);
        body.extend_from_slice(name.as_bytes());
    }
    // Names of one prefix and fixed-width numbers are in sorted order already, as the hash wants them.
    let hash = crc32c(names.join(",").as_bytes()).swap_bytes();
    let tail = Message::new().varint(3, 0).text(4, &format!("{hash:08x}")).varint(5, 1);
    body.extend_from_slice(&tail.0);
    body.into()
}

/// One body per length of namespace name: names of other namespaces of that length would cost memory and cache,
/// and no proxy can tell, as none of them keeps names from one answer to the next.
pub struct Lists {
    topics: usize,
    name_bytes: usize,
    bodies: HashMap<usize, Rc<[u8]>>,
}

impl Lists {
    pub fn new(topics: usize, name_bytes: usize) -> Lists {
        Lists { topics, name_bytes, bodies: HashMap::new() }
    }

    /// The answer's first bytes, with the request id, and the shared rest.
    pub fn answer(&mut self, request_id: u64, namespace: &str) -> (Vec<u8>, Rc<[u8]>) {
        let (topics, name_bytes) = (self.topics, self.name_bytes);
        let body =
            self.bodies.entry(namespace.len()).or_insert_with(|| encode(namespace, topics, name_bytes));
        let start = Message::new().varint(1, request_id);
        (wire::head(wire::GET_TOPICS_RESPONSE, &start, body.len()), Rc::clone(body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Fields, Scanner, Value};

    #[test]
    fn an_answer_holds_the_asked_number_of_names_of_the_asked_length() {
        let (mut bytes, body) = Lists::new(10, 100).answer(7, "public/default");
        bytes.extend_from_slice(&body);
        let mut scanner = Scanner::new();
        let (kind, message) = scanner.next(&mut &bytes[..]).unwrap().command().unwrap();
        let names =
            Fields(message).filter(|field| matches!(field, (2, Value::Bytes(name)) if name.len() == 100));
        assert_eq!((kind, wire::number(message, 1), names.count()), (wire::GET_TOPICS_RESPONSE, Some(7), 10));
    }
}
