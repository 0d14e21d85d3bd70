//! Relayed data: SEND frames in a window per connection, answered by the same frame (echo) or by a receipt
//! (sink). Every answer's sequence and size are checked.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Write};
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::link::Link;
use crate::processor::Watched;
use crate::session::{Reader, Target};
use crate::stats::{Latencies, Report};
use crate::sys::{self, Epoll, Event};
use crate::wire::{self, crc32c, Message};

const READ_BYTES: usize = 256 * 1024;
/// Sequences of one varint length, so that all frames have one size.
const FIRST_SEQUENCE: u64 = 1 << 21;
const LAST_SEQUENCE: u64 = (1 << 28) - 1;
/// Frames handed to one writev.
const GATHERED: usize = 16;
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// A SEND frame of a fixed size: only its head changes with the sequence.
struct Template {
    frame_bytes: usize,
    tail: Vec<u8>,
}

impl Template {
    fn new(frame_bytes: usize) -> Result<Template, String> {
        let metadata = Message::new().text(1, "ladder").varint(2, 0).varint(3, 1);
        let mut checked = (metadata.0.len() as u32).to_be_bytes().to_vec();
        checked.extend_from_slice(&metadata.0);
        let head_bytes = command(FIRST_SEQUENCE).len();
        let payload = frame_bytes.checked_sub(head_bytes + 6 + checked.len());
        let payload = payload.ok_or(format!("--frame-bytes: got {frame_bytes}, expected at least 64"))?;
        checked.resize(checked.len() + payload, b'p');
        let mut tail = vec![0x0e, 0x01];
        tail.extend_from_slice(&crc32c(&checked).to_be_bytes());
        tail.extend_from_slice(&checked);
        Ok(Template { frame_bytes, tail })
    }

    fn head(&self, sequence: u64) -> Vec<u8> {
        let mut head = command(sequence);
        head[..4].copy_from_slice(&(self.frame_bytes as u32 - 4).to_be_bytes());
        head
    }
}

fn command(sequence: u64) -> Vec<u8> {
    wire::head(wire::SEND, &Message::new().varint(1, 0).varint(2, sequence).varint(3, 1), 0)
}

struct Producer {
    reader: Reader,
    /// The next sequence to send, and the bytes of its frame that are sent already.
    next: u64,
    sent: usize,
    expected: u64,
    started: VecDeque<Instant>,
    interest: u32,
}

#[derive(Default)]
struct Tally {
    answered: u64,
    wrong: u64,
    lost: u64,
    latencies: Latencies,
}

struct Relay {
    epoll: Epoll,
    producers: Vec<Option<Producer>>,
    template: Template,
    window: u64,
    answer: u64,
    sending: bool,
    tally: Tally,
}

/// C producers, each with a window of frames outstanding, for a time; prints rates and latencies.
pub fn run(args: &Args, target: &Target) -> Result<(), String> {
    let streams = target.open_many(args.number("connections", 50)?)?;
    let producers =
        streams.into_iter().map(|stream| Producer::new(stream).map(Some)).collect::<io::Result<_>>();
    let mut relay = Relay {
        epoll: Epoll::new().map_err(|error| error.to_string())?,
        producers: producers.map_err(|error| error.to_string())?,
        template: Template::new(args.number("frame-bytes", 1024)? as usize)?,
        window: args.number("window", 1)?,
        answer: if args.switch("receipts") { wire::SEND_RECEIPT } else { wire::SEND },
        sending: true,
        tally: Tally::default(),
    };
    let (warmup, seconds) = (args.seconds("warmup", 0.5)?, args.seconds("seconds", 4.0)?);
    relay.measure(warmup, seconds, &Watched::from(args)?)?.print();
    Ok(())
}

impl Producer {
    fn new(stream: Link) -> io::Result<Producer> {
        let reader = Reader::new(stream)?;
        let interest = sys::IN;
        Ok(Producer {
            reader,
            next: FIRST_SEQUENCE,
            sent: 0,
            expected: FIRST_SEQUENCE,
            started: VecDeque::new(),
            interest,
        })
    }

    fn outstanding(&self) -> u64 {
        self.next - self.expected + u64::from(self.sent > 0)
    }

    /// Write until the window is full or the socket is; tells whether the socket is.
    fn write(&mut self, template: &Template, window: u64, sending: bool) -> io::Result<bool> {
        if !self.reader.stream.flushed()? {
            return Ok(true);
        }
        loop {
            let credit = if sending {
                window.saturating_sub(self.next - self.expected)
            } else {
                u64::from(self.sent > 0)
            };
            if credit == 0 || self.next > LAST_SEQUENCE {
                return Ok(self.reader.stream.unsent());
            }
            let heads: Vec<Vec<u8>> =
                (0..credit.min(GATHERED as u64)).map(|ahead| template.head(self.next + ahead)).collect();
            let mut slices: Vec<IoSlice> =
                heads.iter().flat_map(|head| [IoSlice::new(head), IoSlice::new(&template.tail)]).collect();
            let mut rest = &mut slices[..];
            IoSlice::advance_slices(&mut rest, self.sent);
            match self.reader.stream.write_vectored(rest) {
                Ok(written) => self.advance(written, template.frame_bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
        }
    }

    fn advance(&mut self, written: usize, frame_bytes: usize) {
        let begun_before = usize::from(self.sent > 0);
        let total = self.sent + written;
        let begun = total.div_ceil(frame_bytes) - begun_before;
        let now = Instant::now();
        self.started.extend(std::iter::repeat_n(now, begun));
        self.next += (total / frame_bytes) as u64;
        self.sent = total % frame_bytes;
    }
}

impl Relay {
    fn measure(&mut self, warmup: Duration, seconds: Duration, watched: &Watched) -> Result<Report, String> {
        let failed = |error: io::Error| error.to_string();
        self.begin().map_err(failed)?;
        self.turn_until(Instant::now() + warmup).map_err(failed)?;
        self.tally.answered = 0;
        self.tally.latencies.clear();
        let (before, start) = (watched.look()?, Instant::now());
        self.turn_until(start + seconds).map_err(failed)?;
        let (elapsed, after) = (start.elapsed().as_secs_f64(), watched.look()?);
        let answered = self.tally.answered as f64;
        let mut latencies = std::mem::take(&mut self.tally.latencies);
        self.sending = false;
        self.turn_until(Instant::now() + DRAIN_LIMIT).map_err(failed)?;
        (0..self.producers.len()).for_each(|index| self.lose(index));
        let report = Report::default()
            .count("lost", self.tally.lost)
            .count("wrong", self.tally.wrong)
            .number("per_second", answered / elapsed)
            .number("mb_per_second", answered * self.template.frame_bytes as f64 / elapsed / 1e6)
            .latencies(&mut latencies);
        Ok(before.report(&after, report))
    }

    /// Wait for everybody's answers, and send everybody's first frames.
    fn begin(&mut self) -> io::Result<()> {
        for index in 0..self.producers.len() {
            if let Some(producer) = &self.producers[index] {
                self.epoll.add(&producer.reader.stream, sys::IN, index as u64)?;
            }
            self.step(index, &mut []);
        }
        Ok(())
    }

    fn lose(&mut self, index: usize) {
        if let Some(producer) = self.producers[index].take() {
            self.tally.lost += producer.outstanding();
        }
    }

    fn drained(&self) -> bool {
        self.producers.iter().flatten().all(|producer| producer.outstanding() == 0)
    }

    fn turn_until(&mut self, deadline: Instant) -> io::Result<()> {
        let mut buffer = vec![0u8; READ_BYTES];
        let mut events = [Event::default(); 256];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || (!self.sending && self.drained()) {
                return Ok(());
            }
            let count = self.epoll.wait(&mut events, left.as_millis().clamp(1, 50) as i32)?;
            for event in events.iter().take(count).copied() {
                self.step(event.token as usize, &mut buffer);
            }
        }
    }

    fn step(&mut self, index: usize, buffer: &mut [u8]) {
        if self.try_step(index, buffer).is_err() {
            self.lose(index);
        }
    }

    fn try_step(&mut self, index: usize, buffer: &mut [u8]) -> io::Result<()> {
        let Some(producer) = self.producers[index].as_mut() else { return Ok(()) };
        if !buffer.is_empty() {
            let count = producer.reader.read(buffer)?;
            producer.take(&buffer[..count], self.answer, self.template.frame_bytes, &mut self.tally)?;
        }
        let blocked = producer.write(&self.template, self.window, self.sending)?;
        let interest = if blocked { sys::IN | sys::OUT } else { sys::IN };
        if interest != producer.interest {
            producer.interest = interest;
            self.epoll.modify(&producer.reader.stream, interest, index as u64)?;
        }
        Ok(())
    }
}

impl Producer {
    fn take(
        &mut self,
        mut data: &[u8],
        answer: u64,
        frame_bytes: usize,
        tally: &mut Tally,
    ) -> io::Result<()> {
        while let Some(frame) = self.reader.scanner.next(&mut data) {
            let (kind, message) = frame.command().ok_or(io::Error::other("a frame is no command"))?;
            if kind != answer {
                continue; // a keep-alive of the proxy: answered or not, a run is shorter than its limit
            }
            let whole = kind != wire::SEND || frame.wire_bytes == frame_bytes;
            tally.wrong += u64::from(!whole || wire::number(message, 2) != Some(self.expected));
            self.expected += 1;
            tally.answered += 1;
            if let Some(started) = self.started.pop_front() {
                tally.latencies.add(started.elapsed());
            }
        }
        Ok(())
    }
}
