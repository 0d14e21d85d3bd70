//! The kernel's memory of a thread's sockets, read once a second in slices: a thousand sockets take 0.6 ms.

use super::worker::Pairs;

/// Pairs that are read in one round of a thread's loop; each has two sockets.
const PAIRS_A_ROUND: usize = 125;
const SWEEP_MS: u64 = 1_000;

/// Where a thread's sweep is.
#[derive(Default)]
pub struct Sweep {
    order: Vec<u64>,
    due: u64,
}

impl Sweep {
    /// Returns whether pairs of this second are left.
    pub fn under_way(&self) -> bool {
        !self.order.is_empty()
    }

    /// Reads the next slice, or begins the sweep of the next second.
    pub fn step(&mut self, pairs: &mut Pairs, now: u64) {
        if self.order.is_empty() {
            if now < self.due {
                return;
            }
            self.due = now + SWEEP_MS;
            self.order.extend(pairs.keys());
        }
        let rest = self.order.len().saturating_sub(PAIRS_A_ROUND);
        for id in self.order.drain(rest..) {
            if let Some(pair) = pairs.get_mut(&id) {
                pair.weigh();
            }
        }
    }
}
