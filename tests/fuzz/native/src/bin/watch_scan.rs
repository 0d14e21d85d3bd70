//! However a stream is cut, the scanner counts the same watch frames and bytes, and ends at the same place or not.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pulsar_proxy_native::relay::scanner::{FrameMatch, FrameScanner};
use pulsar_proxy_native_fuzz::cut;

fn sum(found: impl Iterator<Item = FrameMatch>) -> (u64, u64, u64, bool) {
    found.fold((0, 0, 0, false), |sum, seen| {
        (sum.0 + seen.successes, sum.1 + seen.updates, sum.2 + seen.frame_bytes, sum.3 | seen.unwalkable)
    })
}

fuzz_target!(|data: &[u8]| {
    let (body, step) = cut(data);
    let (mut whole, mut cut) = (FrameScanner::new(), FrameScanner::new());
    let at_once = sum(whole.scan(body).into_iter());
    let in_reads = sum(body.chunks(step).filter_map(|read| {
        let found = cut.scan(read);
        assert!(found.is_none_or(|found| found.start <= read.len()));
        found
    }));
    assert_eq!(at_once, in_reads);
    assert_eq!((whole.ended(), whole.left()), (cut.ended(), cut.left()));
});
