//! Topic names and the lists that the fake broker answers with: computed once, shared by all answers. A namespace may
//! say what names are in it, so that one broker has names of every form.

use std::collections::HashMap;
use std::rc::Rc;

use crate::args::Args;
use crate::wire::{self, crc32c, put_varint, Message};

const TOPICS: u64 = 2 << 3 | 2;

/// Bounds of what a namespace may ask for: no answer larger than a frame may be.
const MOST_NAMES: usize = 1_000_000;
const MOST_BYTES: usize = 64 * 1024 * 1024;
const NAME_BYTES: std::ops::RangeInclusive<usize> = 8..=4096;

/// How many names a list has, and of which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Names {
    pub count: usize,
    /// Of each name, as it is on the wire.
    pub bytes: usize,
    pub ascii: bool,
}

impl Names {
    /// `--names`, or `--topics` ASCII names of `--topic-bytes`.
    pub fn from(args: &Args) -> Result<Names, String> {
        if let Some(text) = args.optional("names") {
            let expected = format!("--names: got {text:?}, expected COUNTxBYTES or COUNTxBYTESu");
            return Names::spelled(text).ok_or(expected);
        }
        let number = |name, default| args.number(name, default).map(|value| value as usize);
        Ok(Names { count: number("topics", 10_000)?, bytes: number("topic-bytes", 100)?, ascii: true })
    }

    /// `COUNTxBYTES`, with a `u` behind it if the names are not ASCII.
    fn spelled(text: &str) -> Option<Names> {
        let (count, form) = text.split_once('x')?;
        let plain = form.strip_suffix('u');
        let (count, bytes) = (count.parse().ok()?, plain.unwrap_or(form).parse().ok()?);
        let names = Names { count, bytes, ascii: plain.is_none() };
        let bounded = count <= MOST_NAMES && NAME_BYTES.contains(&bytes) && names.least_bytes() <= MOST_BYTES;
        bounded.then_some(names)
    }

    /// What a namespace says is in it: `bench-10000x100u/ns`.
    fn of_namespace(namespace: &str) -> Option<Names> {
        let (tenant, _) = namespace.split_once('/')?;
        Names::spelled(tenant.rsplit_once('-')?.1)
    }

    /// A tenant whose namespaces say that these names are in them.
    pub fn tenant(&self, begin: &str) -> String {
        format!("{begin}-{}x{}{}", self.count, self.bytes, if self.ascii { "" } else { "u" })
    }

    /// Tag and length stand before each name.
    pub fn least_bytes(&self) -> usize {
        let mut length = Vec::new();
        put_varint(&mut length, self.bytes as u64);
        self.count * (1 + length.len() + self.bytes)
    }

    /// A name of exactly so many bytes. One that is too short for scheme and namespace does without them: nobody here
    /// takes a name apart.
    fn name(&self, namespace: &str, index: usize) -> String {
        let mut name = format!("persistent://{namespace}/topic-{index:06}-");
        if name.len() > self.bytes {
            name = format!("t{index:06}");
        }
        while !self.ascii && name.len() + 2 <= self.bytes {
            name.push('é');
        }
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

/// One body per form of names and length of namespace name: names of other namespaces of that length would cost memory
/// and cache, and no proxy can tell, as none of them keeps names from one answer to the next.
pub struct Lists {
    usual: Names,
    bodies: HashMap<(Names, usize), Rc<[u8]>>,
}

impl Lists {
    /// Lists of namespaces that do not say otherwise have the usual names.
    pub fn new(usual: Names) -> Lists {
        Lists { usual, bodies: HashMap::new() }
    }

    /// The answer's first bytes, with the request id, and the shared rest.
    pub fn answer(&mut self, request_id: u64, namespace: &str) -> (Vec<u8>, Rc<[u8]>) {
        let names = Names::of_namespace(namespace).unwrap_or(self.usual);
        let body = self.bodies.entry((names, namespace.len())).or_insert_with(|| encode(namespace, names));
        let start = Message::new().varint(1, request_id);
        (wire::head(wire::GET_TOPICS_RESPONSE, &start, body.len()), Rc::clone(body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Fields, Scanner, Value};

    const USUAL: Names = Names { count: 10, bytes: 100, ascii: true };

    /// The names of an answer, and the bytes of the whole.
    fn answered(namespace: &str) -> (Vec<String>, usize) {
        let (mut bytes, body) = Lists::new(USUAL).answer(7, namespace);
        bytes.extend_from_slice(&body);
        let mut scanner = Scanner::new();
        let (kind, message) = scanner.next(&mut &bytes[..]).unwrap().command().unwrap();
        assert_eq!((kind, wire::number(message, 1)), (wire::GET_TOPICS_RESPONSE, Some(7)));
        let names = Fields(message).filter_map(|field| match field {
            (2, Value::Bytes(name)) => Some(String::from_utf8(name.to_vec()).unwrap()),
            _ => None,
        });
        (names.collect(), bytes.len())
    }

    #[test]
    fn an_answer_holds_the_asked_number_of_names_of_the_asked_length() {
        let (names, _) = answered("public/default");
        assert_eq!(names.len(), 10);
        assert!(names.iter().all(|name| name.len() == 100 && name.is_ascii()));
    }

    #[test]
    fn a_namespace_says_what_names_are_in_it() {
        for (count, bytes, ascii) in [(5, 20, true), (100, 512, true), (3, 100, false), (3, 101, false)] {
            let form = Names { count, bytes, ascii };
            let namespace = format!("{}/ns", form.tenant("bench"));
            let (names, whole) = answered(&namespace);
            assert_eq!(names.len(), count, "{namespace}");
            assert!(names.iter().all(|name| name.len() == bytes && name.is_ascii() == ascii), "{names:?}");
            assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "{names:?}");
            assert!((1..64).contains(&(whole - form.least_bytes())), "{whole}");
        }
    }

    #[test]
    fn other_namespaces_have_the_usual_names() {
        for namespace in ["bench-10x/ns", "b-1x9999/n", "late/ns-00001", "greedy-9/ns", "x", "b-9999999x20/n"]
        {
            assert_eq!(answered(namespace).0.len(), 10, "{namespace}");
        }
    }
}
