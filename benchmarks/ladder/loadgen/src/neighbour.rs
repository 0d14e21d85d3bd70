//! A busy neighbour on the machine: threads that compute on more memory than a cache holds. It takes processor time
//! and cache from everybody else, as other services of a shared machine do.

use std::hint;
use std::thread;
use std::time::{Duration, Instant};

use crate::args::Args;

/// More than the second-level caches of today's cores.
const WALKED_BYTES: usize = 32 * 1024 * 1024;
const LINE_WORDS: usize = 8;
/// Cache lines between two looks at the clock.
const STRIDE: usize = 4096;

/// Be busy with `--threads` threads for `--seconds`.
pub fn run(args: &Args) -> Result<(), String> {
    let limit = args.seconds("seconds", 4.0)?;
    let threads: Vec<_> =
        (0..args.number("threads", 1)?).map(|_| thread::spawn(move || walk(limit))).collect();
    threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_owned()))
}

/// Read and write one word of each line, over and over.
fn walk(limit: Duration) {
    let mut memory = vec![1u64; WALKED_BYTES / size_of::<u64>()];
    let (deadline, lines) = (Instant::now() + limit, memory.len() / LINE_WORDS);
    let mut line = 0;
    while Instant::now() < deadline {
        for _ in 0..STRIDE {
            let word = &mut memory[line * LINE_WORDS];
            *word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(line as u64);
            line = (line + 1) % lines;
        }
    }
    hint::black_box(memory);
}
