use super::*;

/// Numbers that look random and are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

fn name(text: &[u8]) -> Vec<u8> {
    let length = text.len();
    let head = match length {
        0..=127 => vec![TOPICS_TAG, length as u8],
        _ => vec![TOPICS_TAG, (length & 0x7F) as u8 | 0x80, (length >> 7) as u8],
    };
    [&head[..], text].concat()
}

fn scan(data: &[u8], pieces: &[usize]) -> Result<Found, Refused> {
    let mut scanner = TopicListScanner::new(data.len() as u64);
    let mut rest = data;
    for &size in pieces.iter().chain([&usize::MAX]) {
        let (piece, behind) = rest.split_at(size.min(rest.len()));
        scanner.feed(piece)?;
        rest = behind;
    }
    Ok(scanner.found().clone())
}

#[test]
fn names_and_flags_are_found_however_the_bytes_are_cut() {
    let mut numbers = Numbers(1);
    let lengths = [0, 1, 18, 100, 127, 128, 300, 4093, 4096, 9000];
    for _ in 0..if cfg!(miri) { 2 } else { 2_000 } {
        let (mut data, mut topics, mut bytes) = (b"\x18\x01\x28\x00".to_vec(), 0, 0);
        for _ in 0..numbers.below(20) {
            let length = lengths[numbers.below(lengths.len())];
            let letter = [b'a', TOPICS_TAG, 0xC3][numbers.below(3)];
            data.extend(name(&vec![letter; length]));
            (topics, bytes) = (topics + 1, bytes + length as u64);
        }
        data.extend(b"\x22\x02ab");
        let largest = [2, 30, 5000, 100_000][numbers.below(4)];
        let pieces: Vec<usize> = (0..200).map(|_| 1 + numbers.below(largest)).collect();
        let found = scan(&data, &pieces);
        let expected = Found { filtered: true, changed: false, topics_hash: b"ab".to_vec(), topics, name_bytes: bytes };
        assert_eq!(found, Ok(expected));
    }
}

#[test]
fn no_bytes_panic() {
    let mut numbers = Numbers(2);
    let likely = [0x12, 0x12, 0x7B, 0x7C, 0x80, 0xFF, 0x01, 0x00, 0x79, 0x7D, 0x08];
    for _ in 0..if cfg!(miri) { 200 } else { 200_000 } {
        let data: Vec<u8> = (0..numbers.below(40))
            .map(|_| match numbers.below(4) {
                0 => numbers.below(256) as u8,
                _ => likely[numbers.below(likely.len())],
            })
            .collect();
        let pieces: Vec<usize> = (0..3).map(|_| numbers.below(20)).collect();
        let _ = scan(&data, &pieces);
    }
}

#[test]
fn lists_are_refused_in_the_words_of_python() {
    let cases: [(&[u8], &str); 8] = [
        (b"\x12\x05abc", "ends inside a field"),
        (b"\x12\x01a\x08\x05", "has a second request id"),
        (b"\x02\x01a", "has field number 0, expected 1 to 536870911"),
        (b"\x7c", "has wire type 4, expected 0, 1, 2 or 5"),
        (b"\x78\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "has a number of more than ten bytes"),
        (b"\x80\x80\x80\x80\x10\x01", "has field number 536870912, expected 1 to 536870911"),
        (b"\x92\x80\x80\x80\x80\x00\x01a", "cannot be decoded"),
        (b"\x7b", "has wire type 3, expected 0, 1, 2 or 5"),
    ];
    for (data, expected) in cases {
        let refused = scan(data, &[]).expect_err(expected);
        assert_eq!(refused.to_string(), format!("topic list {expected}"));
    }
}

#[test]
#[cfg_attr(miri, ignore = "hours")]
fn a_walk_without_a_right_guess_is_bounded() {
    let hostile = name(&[TOPICS_TAG; 120]);
    let cut = &hostile[..hostile.len() - 1];
    for (field, most, refused) in
        [(&b"\x12\x00"[..], MOST_FIELDS, Refused::ManyFields), (b"\x18\x00", MOST_SLOW_FIELDS, Refused::ManySlowFields)]
    {
        for (count, expected) in [(most, Ok(())), (most + 1, Err(refused))] {
            let data = [field.repeat(count), cut.to_vec(), b"aaaa".to_vec()].concat();
            let mut scanner = TopicListScanner::new(1 << 20);
            let read = scanner.feed(&data[..data.len() - 4]);
            assert_eq!(read, expected, "{count} of {field:?}");
        }
    }
}

#[test]
fn last_tag_is_found_from_the_end() {
    let mut data = vec![0_u8; 1000];
    assert_eq!(last_tag(&data, 0), None);
    for at in [0, 255, 256, 743, 744, 999] {
        data[at] = TOPICS_TAG;
        assert_eq!(last_tag(&data, 0), Some(at));
        assert_eq!(last_tag(&data, at), Some(at));
    }
    assert_eq!(last_tag(&data[..999], 745), None);
}

#[test]
fn lengths_beyond_all_memory_end_nowhere() {
    let data = [&b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"[..], &[b'a'; 6000]].concat();
    assert_eq!(scan(&data, &[]), Err(Refused::CutField));
    assert_eq!(scan(&data, &[3, 4000]), Err(Refused::CutField));
}
