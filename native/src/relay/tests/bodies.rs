//! Bodies leave as a whole, or say why not; whatever their socket does, it is nobody else's business.

use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::thread;

use super::{is_reset, noise, read, read_all, tcp, Stand};
use crate::relay::queue::{Cause, Command, Event, Kind};
use crate::relay::sys;

const WHOLE: u64 = 0;
const MIB: usize = 1024 * 1024;

/// An anonymous file with these bytes.
fn pages(bytes: &[u8]) -> File {
    let mut file = File::from(sys::memory_file().unwrap());
    file.write_all(bytes).unwrap();
    file
}

/// Begins to write pages to a socket; returns the body's id and the far end.
fn write(stand: &Stand, bytes: &[u8]) -> (u64, TcpStream) {
    let (near, far) = tcp();
    let id = stand.engine.write(near.as_raw_fd(), b"", pages(bytes).as_raw_fd(), bytes.len() as u64);
    (id.unwrap(), far)
}

fn ended(stand: &mut Stand, id: u64) -> [u64; 3] {
    loop {
        let Event { kind, pair, values } = stand.next();
        if (kind, pair) == (Kind::BodyEnded, id) {
            return [values[0], values[1], values[2]];
        }
        assert_eq!(kind, Kind::BodyMoved);
    }
}

/// Waits until a body's socket is full: its position stands.
fn until_full(stand: &Stand, id: u64) -> u64 {
    let mut before = 0;
    loop {
        thread::sleep(std::time::Duration::from_millis(100));
        let position = stand.engine.written(id).unwrap();
        if position > 0 && position == before {
            return position;
        }
        before = position;
    }
}

fn quiet(stand: &Stand) -> bool {
    (0..stand.engine.burdens().len()).all(|index| stand.engine.watched(index) == 1)
        && stand.engine.burdens().iter().all(|(_, count)| *count == 0)
}

#[test]
fn a_body_follows_its_prefix_and_its_descriptors_are_closed() {
    let mut stand = Stand::new(1);
    let bytes = noise(3 * MIB + 17);
    let (near, mut far) = tcp();
    let file = pages(&bytes);
    let id = stand.engine.write(near.as_raw_fd(), b"prefix", file.as_raw_fd(), bytes.len() as u64).unwrap();
    drop((near, file));
    assert_eq!(read(&mut far, 6), b"prefix");
    // Nobody else has the near end any more, so its close is the end of what comes.
    assert!(read_all(&mut far) == bytes);
    assert_eq!(ended(&mut stand, id), [bytes.len() as u64, 0, WHOLE]);
    assert_eq!(stand.engine.written(id), None);
    assert!(quiet(&stand));
}

#[test]
fn a_prefix_waits_for_room_and_leaves_once() {
    let mut stand = Stand::new(1);
    let (near, mut far) = tcp();
    // More than any send buffer takes.
    let (prefix, bytes) = (noise(32 * MIB), noise(MIB));
    let file = pages(&bytes);
    let id = stand.engine.write(near.as_raw_fd(), &prefix, file.as_raw_fd(), MIB as u64).unwrap();
    assert!(stand.next_within(100).is_none());
    assert_eq!(stand.engine.written(id), Some(0));
    assert!(read(&mut far, prefix.len()) == prefix);
    assert!(read(&mut far, MIB) == bytes);
    assert_eq!(ended(&mut stand, id), [MIB as u64, 0, WHOLE]);
}

#[test]
fn a_full_socket_waits_and_holds_up_nobody() {
    let mut stand = Stand::new(1);
    let bytes = noise(8 * MIB);
    let (slow, mut late) = write(&stand, &bytes);
    let position = until_full(&stand, slow);
    assert!((1..bytes.len() as u64).contains(&position));
    let (quick, mut eager) = write(&stand, &bytes);
    assert!(read(&mut eager, bytes.len()) == bytes);
    assert_eq!(ended(&mut stand, quick), [bytes.len() as u64, 0, WHOLE]);
    let before = stand.cpu_micros(0);
    thread::sleep(std::time::Duration::from_millis(300));
    assert!(stand.cpu_micros(0) - before < 20_000);
    assert!(read(&mut late, bytes.len()) == bytes);
    assert_eq!(ended(&mut stand, slow), [bytes.len() as u64, 0, WHOLE]);
    assert!(quiet(&stand));
}

#[test]
fn a_body_that_is_let_go_of_ends_with_a_reset_if_much_is_under_way() {
    let mut stand = Stand::new(1);
    let (id, mut far) = write(&stand, &noise(8 * MIB));
    let position = until_full(&stand, id);
    stand.engine.end_write(id);
    assert_eq!(ended(&mut stand, id), [position, 0, Cause::ByPython as u64]);
    assert!(is_reset(&mut far));
    // Twice, or too late, is nothing.
    stand.engine.end_write(id);
    assert!(stand.next_within(50).is_none());
    assert!(quiet(&stand));
}

#[test]
fn pages_that_end_too_early_end_the_body() {
    let mut stand = Stand::new(1);
    let (near, _far) = tcp();
    let id = stand.engine.write(near.as_raw_fd(), b"", pages(b"short").as_raw_fd(), 10).unwrap();
    assert_eq!(ended(&mut stand, id), [5, libc::EIO as u64, Cause::ClientReset as u64]);
}

#[test]
fn a_descriptor_that_is_none_is_refused() {
    let stand = Stand::new(1);
    assert!(stand.engine.write(-1, b"", -1, 10).is_err());
    let (near, _far) = tcp();
    assert!(stand.engine.write(near.as_raw_fd(), b"", -1, 10).is_err());
    assert!(quiet(&stand));
}

#[test]
fn a_panic_ends_one_body_and_no_other() {
    let mut stand = Stand::new(1);
    let bytes = noise(8 * MIB);
    let (bad, mut cut) = write(&stand, &bytes);
    until_full(&stand, bad);
    let (good, mut far) = write(&stand, &bytes);
    stand.engine.tell_thread(0, Command::Panic(bad));
    assert_eq!(ended(&mut stand, bad)[1..], [0, Cause::Internal as u64]);
    assert!(read_all(&mut cut).len() < bytes.len());
    assert!(read(&mut far, bytes.len()) == bytes);
    assert_eq!(ended(&mut stand, good), [bytes.len() as u64, 0, WHOLE]);
}

#[test]
fn a_stopped_engine_lets_go_of_its_bodies_and_takes_no_more() {
    let mut stand = Stand::new(2);
    let (id, mut far) = write(&stand, &noise(8 * MIB));
    let position = until_full(&stand, id);
    stand.engine.stop();
    assert_eq!(ended(&mut stand, id), [position, 0, Cause::ByPython as u64]);
    assert!(is_reset(&mut far));
    let (near, _far) = tcp();
    assert!(stand.engine.write(near.as_raw_fd(), b"", near.as_raw_fd(), 10).is_err());
}

#[test]
fn pages_are_closed_by_a_thread_until_the_engine_stops() {
    let stand = Stand::new(1);
    // A connection instead of a file: its far end tells of the close.
    let (near, mut far) = tcp();
    assert!(stand.engine.close_pages(near.into_raw_fd()));
    assert!(read_all(&mut far).is_empty());
    stand.engine.stop();
    let (near, mut far) = tcp();
    assert!(!stand.engine.close_pages(near.as_raw_fd()));
    // The descriptor is still the caller's.
    (&near).write_all(b"open").unwrap();
    assert_eq!(read(&mut far, 4), b"open");
}
