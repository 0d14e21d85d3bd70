//! The scanner against a slow model that keeps the whole stream.

use super::Random;
use crate::relay::scanner::{FrameMatch, FrameScanner};

/// Finds all heads of a whole stream: position, size and kind; then where sizes make no sense, if they do.
fn heads(stream: &[u8]) -> (Vec<(usize, u64, u16)>, Option<usize>) {
    let (mut found, mut at) = (Vec::new(), 0usize);
    while stream.len() >= at + 10 {
        let number = |from: usize| i32::from_be_bytes(stream[from..from + 4].try_into().unwrap()) as i64;
        let (total, command) = (number(at), number(at + 4));
        if command < 2 || command > total - 4 {
            return (found, Some(at));
        }
        found.push((at, total as u64 + 4, u16::from_be_bytes([stream[at + 8], stream[at + 9]])));
        at += total as usize + 4;
    }
    (found, None)
}

/// What the scanner should say about the read from `before` to `after`: heads belong to the read that completes them.
fn model(stream: &[u8], before: usize, after: usize) -> Option<FrameMatch> {
    let (found, bad) = heads(&stream[..after]);
    let mut seen: Option<FrameMatch> = None;
    for (at, size, kind) in found {
        if at + 10 > before && [0x0841, 0x0842, 0x084D].contains(&kind) {
            let start = at.saturating_sub(before);
            let seen = seen.get_or_insert(FrameMatch { start, ..FrameMatch::default() });
            seen.successes += u64::from(kind == 0x0841);
            seen.updates += u64::from(kind != 0x0841);
            seen.frame_bytes += size;
            seen.open_bytes = (at as u64 + size).saturating_sub(after as u64);
        }
    }
    if bad.is_some_and(|at| at + 10 > before) {
        let seen = seen.get_or_insert(FrameMatch { start: after - before, ..FrameMatch::default() });
        seen.unwalkable = true;
    }
    seen
}

fn stream(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.below(12) {
        let kind = [7, 65, 66, 77, 64, 76][random.below(6)];
        bytes.extend(super::frame(kind, random.below(40)));
        if random.below(30) == 0 {
            bytes.extend((0..random.below(30)).map(|_| random.next() as u8).collect::<Vec<_>>());
        }
    }
    if !bytes.is_empty() && random.below(10) == 0 {
        let at = random.below(bytes.len());
        bytes[at] ^= 1 << random.below(8);
    }
    bytes
}

#[test]
fn the_scanner_equals_a_slow_model_on_random_streams_in_random_reads() {
    let mut random = Random(20);
    for round in 0..if cfg!(miri) { 5 } else { 20_000 } {
        let stream = stream(&mut random);
        let (mut scanner, mut at) = (FrameScanner::new(), 0);
        let largest = 1 + random.below(60);
        while at < stream.len() {
            let next = (at + random.below(largest + 1)).min(stream.len());
            assert_eq!(scanner.scan(&stream[at..next]), model(&stream, at, next), "round {round}: {stream:?} {at}");
            at = next;
        }
    }
}

#[test]
fn a_frame_of_two_gib_is_skipped_by_counting() {
    let mut scanner = FrameScanner::new();
    let mut head = vec![0x7F, 0xFF, 0xFF, 0xFF, 0, 0, 0, 2, 8, 65];
    let found = scanner.scan(&head).unwrap();
    assert_eq!((found.frame_bytes, found.open_bytes), (0x8000_0003, 0x8000_0003 - 10));
    scanner.skip(found.open_bytes);
    assert_eq!(scanner.left(), 0);
    head[0] = 0x80;
    assert!(scanner.scan(&head).unwrap().unwalkable);
    assert!(scanner.ended());
    assert_eq!(scanner.left(), u64::MAX);
    assert_eq!(scanner.scan(&head), None);
}
