//! The scanner finds the same in any reads.

use super::Random;
use crate::relay::scanner::FrameScanner;

/// What a scanner says of a stream in all: kinds, bytes of frames of interest, and whether sizes made no sense.
fn totals(stream: &[u8], random: &mut Random, largest: usize) -> (u64, u64, u64, bool) {
    let (mut scanner, mut sum, mut at) = (FrameScanner::new(), (0, 0, 0, false), 0);
    while at < stream.len() {
        let next = (at + 1 + random.below(largest)).min(stream.len());
        if let Some(found) = scanner.scan(&stream[at..next]) {
            assert!(found.start <= next - at && found.open_bytes <= found.frame_bytes);
            sum.0 += found.successes;
            sum.1 += found.updates;
            sum.2 += found.frame_bytes;
            sum.3 |= found.unwalkable;
        }
        at = next;
    }
    sum
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
fn the_reads_change_nothing_in_random_streams() {
    let mut random = Random(20);
    for round in 0..if cfg!(miri) { 5 } else { 20_000 } {
        let stream = stream(&mut random);
        let whole = totals(&stream, &mut random, 1_000_000);
        for largest in [1, 9, 60] {
            assert_eq!(totals(&stream, &mut random, largest), whole, "round {round}: {stream:?}");
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
