//! However a stream is cut, the scanner finds the same producers and messages.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pulsar_proxy_native::relay::producers::{Producer, ProducerScanner, Sink};
use pulsar_proxy_native_fuzz::cut;

#[derive(Debug, PartialEq)]
enum Found {
    Send(Option<u64>, u64, u64),
    Closed(u64),
    Subscribed,
    Ended,
    Producer(Producer),
}

#[derive(Default)]
struct Seen(Vec<Found>);

impl Sink for Seen {
    fn send(&mut self, producer: Option<u64>, messages: u64, frame_bytes: u64) {
        assert!(messages >= 1 && messages <= frame_bytes);
        self.0.push(Found::Send(producer, messages, frame_bytes));
    }
    fn closed(&mut self, producer: u64) {
        self.0.push(Found::Closed(producer));
    }
    fn subscribed(&mut self) {
        self.0.push(Found::Subscribed);
    }
    fn ended(&mut self) {
        self.0.push(Found::Ended);
    }
}

fn found(body: &[u8], step: usize) -> Vec<Found> {
    let (mut scanner, mut seen) = (ProducerScanner::new(), Seen::default());
    for read in body.chunks(step) {
        let mut rest = read;
        while let Some(stop) = scanner.scan(rest, &mut seen) {
            assert!(stop.start <= stop.resume && stop.resume <= rest.len());
            seen.0.push(Found::Producer(stop.producer));
            rest = &rest[stop.resume..];
        }
    }
    seen.0
}

fuzz_target!(|data: &[u8]| {
    let (body, step) = cut(data);
    assert_eq!(found(body, body.len().max(1)), found(body, step));
});
