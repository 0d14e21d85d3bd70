//! What the fuzz targets share: an input is cut into reads as its first byte says, 0: in one.

/// Returns the bytes behind the first, and the size of the reads they come in.
pub fn cut(data: &[u8]) -> (&[u8], usize) {
    match data.split_first() {
        Some((0, body)) => (body, body.len().max(1)),
        Some((&step, body)) => (body, usize::from(step)),
        None => (data, 1),
    }
}
