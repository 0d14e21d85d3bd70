//! One client that asks one thing at a time and waits for it, blocking: for threads that measure what a small client
//! feels while others make a storm. Also asks the fake broker what it has been asked.

use std::io::{self, Write};
use std::net::SocketAddrV4;
use std::time::Duration;

use crate::link::Link;
use crate::lists;
use crate::session::{self, Target};
use crate::wire::{self, Message};

/// Longer than any server lets a request wait.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

const LOOKUP_FAILED: u64 = 2;

pub enum Answer {
    Right,
    Wrong,
    Refused,
}

pub struct Asker {
    stream: Link,
    next_id: u64,
}

impl Asker {
    pub fn open(address: SocketAddrV4) -> Result<Asker, String> {
        Asker::of(&Target::plain(address))
    }

    pub fn of(target: &Target) -> Result<Asker, String> {
        let stream = target.open().map_err(|error| format!("{}: {error}", target.address))?;
        stream.set_read_timeout(Some(ANSWER_LIMIT)).map_err(|error| error.to_string())?;
        Ok(Asker { stream, next_id: 1 })
    }

    /// Ask for a topic list; it is right if it has at least so many bytes.
    pub fn list(&mut self, namespace: &str, least_bytes: usize) -> io::Result<Answer> {
        let question = lists::question(self.next_id, namespace);
        let (kind, message) = self.ask(&question)?;
        let id = wire::number(&message, 1);
        Ok(self.judge(kind, wire::GET_TOPICS_RESPONSE, id, message.len() >= least_bytes))
    }

    pub fn lookup(&mut self, topic: &str) -> io::Result<Answer> {
        let question = lookup(self.next_id, topic);
        let (kind, message) = self.ask(&question)?;
        if kind == wire::LOOKUP_RESPONSE && wire::number(&message, 3) == Some(LOOKUP_FAILED) {
            self.next_id += 1;
            return Ok(Answer::Refused);
        }
        let found = wire::bytes(&message, 1).is_some();
        Ok(self.judge(kind, wire::LOOKUP_RESPONSE, wire::number(&message, 4), found))
    }

    /// How many topic lists and lookups this fake broker has been asked for since its start, and the CONNECTs.
    pub fn counters(&mut self) -> io::Result<(u64, u64, u64)> {
        let (kind, message) = self.ask(&wire::frame(wire::COUNTERS, &Message::new()))?;
        let number = |field| wire::number(&message, field);
        let numbers = number(1)
            .zip(number(2))
            .zip(number(3))
            .map(|((lists, lookups), connects)| (lists, lookups, connects));
        numbers
            .filter(|_| kind == wire::COUNTERS_RESPONSE)
            .ok_or(io::Error::other(format!("got command {kind}, expected the fake broker's counters")))
    }

    fn judge(&mut self, kind: u64, expected: u64, id: Option<u64>, whole: bool) -> Answer {
        let mine = id == Some(self.next_id);
        self.next_id += 1;
        match kind {
            wire::ERROR => Answer::Refused,
            kind if kind == expected && mine && whole => Answer::Right,
            _ => Answer::Wrong,
        }
    }

    fn ask(&mut self, question: &[u8]) -> io::Result<(u64, Vec<u8>)> {
        self.stream.write_all(question)?;
        loop {
            let frame = session::read_frame(&mut self.stream)?;
            match session::parse(&frame)? {
                (wire::PING, _) => self.stream.write_all(&wire::frame(wire::PONG, &Message::new()))?,
                (wire::PONG, _) => {}
                (kind, message) => return Ok((kind, message.to_vec())),
            }
        }
    }
}

/// The frame that asks who owns a topic.
pub fn lookup(request_id: u64, topic: &str) -> Vec<u8> {
    wire::frame(wire::LOOKUP, &Message::new().text(1, topic).varint(2, request_id).varint(3, 0))
}
