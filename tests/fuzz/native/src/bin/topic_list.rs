//! No bytes panic; what is accepted in two cuts has the same names, bytes and flags.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pulsar_proxy_native::topic_list::{Found, Refused, TopicListScanner};
use pulsar_proxy_native_fuzz::cut;

fn found(body: &[u8], step: usize) -> Result<Found, Refused> {
    let mut scanner = TopicListScanner::new(body.len() as u64);
    for read in body.chunks(step) {
        scanner.feed(read)?;
    }
    Ok(scanner.found().clone())
}

fuzz_target!(|data: &[u8]| {
    let (body, step) = cut(data);
    if let (Ok(whole), Ok(cut)) = (found(body, body.len().max(1)), found(body, step)) {
        assert_eq!(whole, cut);
        assert!(whole.topics <= body.len() as u64 && whole.name_bytes <= body.len() as u64);
    }
});
