//! Scans a stream of frames for topic lists sent to a watcher.
//!
//! Only the first ten bytes of a frame are read. No byte is copied, except a frame's head that is split between two
//! reads (at most nine bytes). Sizes that make no sense end the scan for good; one match reports that.

/// Both sizes, the tag of BaseCommand.type and its value: all known encoders put these first.
pub const SCANNED_BYTES: usize = 10;
const SIZES_BYTES: i64 = 4;
const SMALLEST_COMMAND: i64 = 2;
/// The tag of field 1 as a varint (0x08), then WATCH_TOPIC_LIST_SUCCESS (65), WATCH_TOPIC_UPDATE (66) or
/// WATCH_SCALABLE_TOPICS_UPDATE (77), which counts as an update.
const SUCCESS: u16 = 0x0800 | 65;
const UPDATE: u16 = 0x0800 | 66;
const SCALABLE_UPDATE: u16 = 0x0800 | 77;

/// The watch frames that begin in one read, or the end of the scan.
///
/// The first watch frame begins at `start`, or began with bytes already passed on (then 0); all bytes of a read that
/// only ended the scan lie before `start`. `frame_bytes` is the size of all these frames on the wire, `open_bytes` the
/// rest of the last frame that is still to come after this read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameMatch {
    pub start: usize,
    pub successes: u64,
    pub updates: u64,
    pub frame_bytes: u64,
    pub open_bytes: u64,
    pub unwalkable: bool,
}

impl FrameMatch {
    fn at(start: usize) -> Self {
        FrameMatch { start, ..FrameMatch::default() }
    }

    fn add(&mut self, head: Head, open_bytes: u64) {
        if head.kind == SUCCESS {
            self.successes += 1;
        } else {
            self.updates += 1;
        }
        self.frame_bytes += head.frame_bytes;
        self.open_bytes = open_bytes;
    }

    /// Returns whether a watch frame begins in the read; a match without one only reports the end of the scan.
    pub fn has_frames(&self) -> bool {
        self.successes + self.updates > 0
    }
}

/// The first ten bytes of a frame, read.
#[derive(Clone, Copy)]
struct Head {
    frame_bytes: u64,
    kind: u16,
}

impl Head {
    /// Reads a head; None if its sizes make no sense. Sizes are signed, as upstream reads them: above 2 GiB they are
    /// negative and fit no command.
    fn read(bytes: &[u8; SCANNED_BYTES]) -> Option<Head> {
        let [a, b, c, d, e, f, g, h, i, j] = *bytes;
        let total = i64::from(i32::from_be_bytes([a, b, c, d]));
        let command = i64::from(i32::from_be_bytes([e, f, g, h]));
        if SMALLEST_COMMAND <= command && command <= total - SIZES_BYTES {
            let frame_bytes = u64::try_from(total + SIZES_BYTES).ok()?;
            return Some(Head { frame_bytes, kind: u16::from_be_bytes([i, j]) });
        }
        None
    }

    fn watched(self) -> bool {
        matches!(self.kind, SUCCESS | UPDATE | SCALABLE_UPDATE)
    }
}

/// Scans one direction of a connection from its first byte, in reads of any size.
#[derive(Clone, Debug, Default)]
pub struct FrameScanner {
    left: u64,
    head: [u8; SCANNED_BYTES],
    head_bytes: u8,
    ended: bool,
}

impl FrameScanner {
    /// Begins at the first byte of a frame.
    pub fn new() -> Self {
        FrameScanner::default()
    }

    /// Returns whether sizes that make no sense have ended the scan.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Returns how many bytes of the frame under way are still to come; endless after the end of the scan.
    pub fn left(&self) -> u64 {
        if self.ended {
            u64::MAX
        } else {
            self.left
        }
    }

    /// Counts bytes of the frame under way that passed unseen; `count` must be at most `left()`.
    pub fn skip(&mut self, count: u64) {
        debug_assert!(count <= self.left());
        self.left = self.left.saturating_sub(count);
    }

    /// Scans the next bytes; returns None if no watch frame begins there.
    #[inline]
    pub fn scan(&mut self, data: &[u8]) -> Option<FrameMatch> {
        let count = data.len() as u64;
        if self.ended {
            return None;
        }
        if count <= self.left {
            self.left -= count;
            return None;
        }
        if self.head_bytes > 0 {
            return self.scan_from_split_head(data);
        }
        let left = self.left;
        self.scan_frames(data, left, None)
    }

    fn scan_frames(&mut self, data: &[u8], mut position: u64, mut seen: Option<FrameMatch>) -> Option<FrameMatch> {
        let count = data.len() as u64;
        loop {
            // A frame under way may end far behind this read: `position` may be larger than any index.
            let rest = usize::try_from(position).ok().and_then(|from| data.get(from..)).unwrap_or_default();
            let Some(bytes) = rest.first_chunk::<SCANNED_BYTES>() else {
                if position >= count {
                    self.left = position - count;
                } else {
                    self.left = 0;
                    self.keep_head(rest);
                }
                return seen;
            };
            let Some(head) = Head::read(bytes) else {
                return Some(self.end(seen, data.len()));
            };
            let behind = position + head.frame_bytes;
            if head.watched() {
                let start = data.len() - rest.len();
                seen.get_or_insert_with(|| FrameMatch::at(start)).add(head, behind.saturating_sub(count));
            }
            position = behind;
        }
    }

    fn scan_from_split_head(&mut self, data: &[u8]) -> Option<FrameMatch> {
        let before = usize::from(self.head_bytes);
        let more = data.len().min(SCANNED_BYTES - before);
        self.head[before..before + more].copy_from_slice(&data[..more]);
        if before + more < SCANNED_BYTES {
            self.head_bytes += more as u8;
            return None;
        }
        self.head_bytes = 0;
        let Some(head) = Head::read(&self.head) else {
            return Some(self.end(None, data.len()));
        };
        // A frame is at least as long as its head, so that it ends behind the bytes kept of it.
        let behind = head.frame_bytes - before as u64;
        let seen = head.watched().then(|| {
            let mut seen = FrameMatch::at(0);
            seen.add(head, behind.saturating_sub(data.len() as u64));
            seen
        });
        self.scan_frames(data, behind, seen)
    }

    fn keep_head(&mut self, bytes: &[u8]) {
        self.head[..bytes.len()].copy_from_slice(bytes);
        self.head_bytes = bytes.len() as u8;
    }

    /// Ends the scan: later bytes are skipped.
    fn end(&mut self, seen: Option<FrameMatch>, count: usize) -> FrameMatch {
        self.ended = true;
        let mut seen = seen.unwrap_or_else(|| FrameMatch::at(count));
        seen.unwalkable = true;
        seen
    }
}
