//! Topic names and the lists that the fake broker answers with: computed once, shared by all answers.

use std::collections::HashMap;
use std::rc::Rc;

use crate::args::Args;
use crate::wire::{self, crc32c, put_varint, Message};

const TOPICS: u64 = 2 << 3 | 2;

/// How many names a list has, and how long they are.
#[derive(Clone, Copy)]
pub struct Names {
    pub count: usize,
    /// Of each name, as it is on the wire.
    pub bytes: usize,
}

impl Names {
    /// `--topics` names of `--topic-bytes`.
    pub fn from(args: &Args) -> Result<Names, String> {
        let number = |name, default| args.number(name, default).map(|value| value as usize);
        Ok(Names { count: number("topics", 10_000)?, bytes: number("topic-bytes", 100)? })
    }

    /// Tag and length stand before each name.
    pub fn least_bytes(&self) -> usize {
        let mut length = Vec::new();
        put_varint(&mut length, self.bytes as u64);
        self.count * (1 + length.len() + self.bytes)
    }

    /// A name of exactly so many bytes.
    fn name(&self, namespace: &str, index: usize) -> String {
        let name = format!("persistent://{namespace}/topic-{index:06}-");
        let missing = self.bytes.saturating_sub(name.len());
        name + &"x".repeat(missing)
    }
}

/// All fields of an answer but the request id, which stands before them on the wire.
fn encode(namespace: &str, form: Names) -> Rc<[u8]> {
    let names: Vec<String> = (0..form.count).map(|index| form.name(namespace, index)).collect();
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

/// One body per length of namespace name: names of other namespaces of that length would cost memory and cache, and no
/// proxy can tell, as none of them keeps names from one answer to the next.
pub struct Lists {
    names: Names,
    bodies: HashMap<usize, Rc<[u8]>>,
}

impl Lists {
    pub fn new(names: Names) -> Lists {
        Lists { names, bodies: HashMap::new() }
    }

    /// The answer's first bytes, with the request id, and the shared rest.
    pub fn answer(&mut self, request_id: u64, namespace: &str) -> (Vec<u8>, Rc<[u8]>) {
        let body = self.bodies.entry(namespace.len()).or_insert_with(|| encode(namespace, self.names));
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
        let (mut bytes, body) = Lists::new(Names { count: 10, bytes: 100 }).answer(7, "public/default");
        bytes.extend_from_slice(&body);
        let mut scanner = Scanner::new();
        let (kind, message) = scanner.next(&mut &bytes[..]).unwrap().command().unwrap();
        assert_eq!((kind, wire::number(message, 1)), (wire::GET_TOPICS_RESPONSE, Some(7)));
        let names = Fields(message).filter_map(|field| match field {
            (2, Value::Bytes(name)) => Some(String::from_utf8(name.to_vec()).unwrap()),
            _ => None,
        });
        let names: Vec<_> = names.collect();
        assert_eq!(names.len(), 10);
        assert!(names.iter().all(|name| name.len() == 100 && name.is_ascii()));
    }
}
