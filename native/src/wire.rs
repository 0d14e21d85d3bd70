//! Fields of protobuf's wire format, read as the decoder does that Python uses (upb): what it refuses is refused here.
//!
//! Rule: no input panics, and no call reads a byte twice. Numbers of more bytes than needed are read as upb reads them:
//! five bytes at most for a tag or a length, ten for a value, of which bits beyond the 64th are dropped.

/// Groups inside groups that upb descends into.
const MOST_DEPTH: usize = 100;
const LARGEST_LENGTH: u64 = i32::MAX as u64;

/// The value of a field, as far as anybody asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    Varint(u64),
    /// Bytes from here to the field's end.
    Bytes {
        start: usize,
    },
    /// A number of fixed size.
    Fixed,
    /// Fields between two tags; Python's walk refuses groups, upb does not.
    Group,
}

/// A whole field: its number, its value, and where the next field begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    pub number: u32,
    pub value: Value,
    pub end: usize,
}

/// Return the whole field at `position`, or None for bytes that are none.
#[inline]
pub fn field(data: &[u8], position: usize) -> Option<Field> {
    let (tag, after) = tag(data, position)?;
    let number = tag >> 3;
    if number == 0 {
        return None;
    }
    let (value, end) = match tag & 7 {
        0 => varint(data, after).map(|(value, end)| (Value::Varint(value), end))?,
        2 => {
            let (start, end) = bytes(data, after)?;
            (Value::Bytes { start }, end)
        }
        3 => (Value::Group, group_end(data, after, number)?),
        kind => (Value::Fixed, fixed_end(data, after, kind)?),
    };
    Some(Field { number, value, end })
}

/// Return where a group ends whose head has been read; field 0 passes inside a group, as in upb.
fn group_end(data: &[u8], mut position: usize, number: u32) -> Option<usize> {
    let mut open = [0_u32; MOST_DEPTH];
    open[0] = number;
    let mut depth = 1;
    while depth > 0 {
        let (tag, after) = tag(data, position)?;
        position = match tag & 7 {
            0 => varint(data, after)?.1,
            2 => bytes(data, after)?.1,
            3 => {
                *open.get_mut(depth)? = tag >> 3;
                depth += 1;
                after
            }
            4 => {
                depth -= 1;
                if open[depth] != tag >> 3 {
                    return None;
                }
                after
            }
            kind => fixed_end(data, after, kind)?,
        };
    }
    Some(position)
}

fn fixed_end(data: &[u8], position: usize, kind: u32) -> Option<usize> {
    let size = match kind {
        1 => 8,
        5 => 4,
        _ => return None,
    };
    (data.len().checked_sub(position)? >= size).then_some(position + size)
}

fn tag(data: &[u8], position: usize) -> Option<(u32, usize)> {
    let (value, end) = number_of(data, position, 5)?;
    Some((u32::try_from(value).ok()?, end))
}

fn varint(data: &[u8], position: usize) -> Option<(u64, usize)> {
    number_of(data, position, 10)
}

/// Return where bytes with a length before them begin and end.
fn bytes(data: &[u8], position: usize) -> Option<(usize, usize)> {
    let (length, start) = number_of(data, position, 5)?;
    if length > LARGEST_LENGTH {
        return None;
    }
    let length = usize::try_from(length).ok()?;
    (length <= data.len() - start).then_some((start, start + length))
}

#[inline(always)]
fn number_of(data: &[u8], position: usize, most_bytes: usize) -> Option<(u64, usize)> {
    // Nearly every number of a list has one byte, or two for the length of a long name.
    match data.get(position..)? {
        [first, ..] if *first < 0x80 => return Some((u64::from(*first), position + 1)),
        [first, second, ..] if *second < 0x80 => {
            return Some((u64::from(first & 0x7F) | u64::from(*second) << 7, position + 2));
        }
        _ => {}
    }
    long_number(data, position, most_bytes)
}

fn long_number(data: &[u8], position: usize, most_bytes: usize) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    for (index, &byte) in data.get(position..)?.iter().take(most_bytes).enumerate() {
        value |= u64::from(byte & 0x7F) << (7 * index);
        if byte < 0x80 {
            return Some((value, position + index + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(data: &[u8]) -> Option<usize> {
        field(data, 0).map(|found| found.end)
    }

    /// `value` in `size` bytes, more than it needs.
    fn long(value: u8, size: usize) -> Vec<u8> {
        let mut bytes = vec![0x80; size];
        bytes[0] |= value;
        bytes[size - 1] &= 0x7F;
        bytes
    }

    #[test]
    fn fields_of_all_kinds_end_where_the_next_begins() {
        let found = field(b"\x18\x01rest", 0);
        assert_eq!(found, Some(Field { number: 3, value: Value::Varint(1), end: 2 }));
        let found = field(b"..\x12\x03abcd", 2);
        assert_eq!(found, Some(Field { number: 2, value: Value::Bytes { start: 4 }, end: 7 }));
        assert_eq!(end(b"\x79abcdefgh"), Some(9));
        assert_eq!(end(b"\x7dabcd"), Some(5));
        assert_eq!(end(b"\x7b\x78\x01\x7c"), Some(4));
    }

    #[test]
    fn cut_fields_are_none() {
        for cut in [&b""[..], b"\x18", b"\x80", b"\x18\x80", b"\x12", b"\x12\x02a", b"\x79abcdefg", b"\x7dabc", b"\x7b"]
        {
            assert_eq!(end(cut), None, "{cut:?}");
        }
        assert_eq!(field(b"\x18\x01", 7), None);
    }

    #[test]
    fn wrong_tags_are_none() {
        for wrong in [&b"\x00\x01"[..], b"\x02\x01a", b"\x7e\x01", b"\x7f\x01", b"\x7c"] {
            assert_eq!(end(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn tags_and_lengths_have_five_bytes_at_most_and_values_ten() {
        for size in 2..12 {
            let tagged = [long(0x18, size), vec![1]].concat();
            assert_eq!(end(&tagged).is_some(), size <= 5, "tag of {size}");
            let lengthy = [vec![0x12], long(1, size), vec![b'a']].concat();
            assert_eq!(end(&lengthy).is_some(), size <= 5, "length of {size}");
            let valued = [vec![0x18], long(1, size)].concat();
            assert_eq!(end(&valued).is_some(), size <= 10, "value of {size}");
        }
        assert_eq!(end(b"\x80\x80\x80\x80\x10\x01"), None);
        assert_eq!(end(b"\x7a\x81\x80\x80\x80\x10a"), None);
    }

    #[test]
    fn bits_beyond_the_64th_are_dropped() {
        let found = field(b"\x18\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02", 0);
        assert_eq!(found.map(|found| found.value), Some(Value::Varint(0)));
    }

    #[test]
    fn groups_nest_a_hundred_deep() {
        for (depth, whole) in [(1, true), (100, true), (101, false), (5000, false)] {
            let nested = [vec![0x7B; depth], vec![0x7C; depth]].concat();
            assert_eq!(end(&nested).is_some(), whole, "{depth}");
        }
        assert_eq!(end(b"\x7b\x74"), None);
        assert_eq!(end(b"\x7b\x7e\x7c"), None);
        assert_eq!(end(b"\x7b\x00\x01\x12\x01a\x79abcdefgh\x7c"), Some(16));
    }
}
