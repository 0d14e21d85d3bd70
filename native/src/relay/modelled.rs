//! With the feature `loom`, what stands in the place of `mod.rs`: only what the models of the hand-over between threads
//! are about.

pub mod hand_over;
mod sync;

#[cfg(test)]
#[path = "tests/models.rs"]
mod models;
