//! However a stream is cut, the same heads are found, none is longer than 4 KiB, and the scan ends or not.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pulsar_proxy_native::relay::tap::CommandScanner;
use pulsar_proxy_native_fuzz::cut;

fn scanned<'a>(reads: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, bool, u64) {
    let (mut scanner, mut found) = (CommandScanner::default(), Vec::new());
    for read in reads {
        scanner.scan(read, |head| found.push(head.to_vec()));
    }
    (found, scanner.ended(), scanner.left())
}

fuzz_target!(|data: &[u8]| {
    let (body, step) = cut(data);
    let whole = scanned([body].into_iter());
    assert!(whole.0.iter().all(|head| (10..=4096).contains(&head.len())));
    assert_eq!(whole, scanned(body.chunks(step)));
});
