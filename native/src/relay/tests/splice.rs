//! Bulk goes through pipes: exactly, bounded, and back to copies.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;

use super::{fill, frame, noise, read, read_all, Stand, BUFFER};
use crate::relay::direction::{Direction, Ends, Step, Turn};
use crate::relay::pipes::{Pipe, PipePool};
use crate::relay::queue::{Command, Kind};
use crate::relay::stats::Stats;
use crate::relay::sys::send_urgent;

#[test]
fn payloads_are_spliced_beside_the_scanner_and_watch_frames_between_are_found() {
    let mut stand = Stand::with_buffer(1, 256 * 1024);
    let mut pair = stand.join_scanned();
    let (bulk, watched) = (frame(9, 200_000), frame(66, 50));
    let stream = [bulk.repeat(40), watched.clone(), bulk.repeat(40), watched.clone(), bulk.clone()].concat();
    thread::scope(|scope| {
        let (mut broker, stream) = (pair.broker.try_clone().unwrap(), &stream);
        scope.spawn(move || broker.write_all(stream).unwrap());
        let mut client = pair.client.try_clone().unwrap();
        scope.spawn(move || assert!(read(&mut client, stream.len()) == *stream));
        for _ in 0..2 {
            let values = stand.expect(Kind::Frames, &pair);
            assert_eq!(values[1..4], [0, 1, 60]);
            stand.send(&pair, Command::Pass(pair.id, values[0]));
            assert_eq!(stand.expect(Kind::Drained, &pair)[0], values[0]);
        }
    });
    let record = stand.record(&pair);
    assert!(record.spliced_bytes > stream.len() as u64 / 2, "{record:?}");
    pair.broker.write_all(&frame(9, 10)).unwrap();
    assert_eq!(read(&mut pair.client, 20), frame(9, 10));
}

#[test]
fn a_stopped_receiver_leaves_no_more_than_a_pipe_behind() {
    let mut stand = Stand::new(1);
    let mut pair = stand.join();
    let bytes = noise(60_000_000);
    let sent = fill(&mut pair.broker, &bytes);
    let record = stand.record(&pair);
    assert!(record.spliced_bytes > 0 && record.held_for_client > 0, "{record:?}");
    assert!(record.held_for_client as usize <= BUFFER, "{record:?}");
    stand.send(&pair, Command::Close(pair.id, 20_000));
    // What is in the pipe is sent, too.
    assert!(read_all(&mut pair.client) == bytes[..record.to_client_bytes as usize]);
    assert!(record.to_client_bytes as usize <= sent);
    stand.expect(Kind::Ended, &pair);
}

#[test]
fn a_pipe_that_is_stuck_is_given_back_and_its_bytes_are_not_lost() {
    let stand = Stand::new(1);
    let mut pair = stand.join();
    let bytes = noise(60_000_000);
    let sent = fill(&mut pair.broker, &bytes);
    let held = stand.record(&pair).held_for_client;
    thread::sleep(std::time::Duration::from_millis(1_300));
    assert_eq!(stand.record(&pair).held_for_client, held);
    assert!(read(&mut pair.client, sent) == bytes[..sent]);
}

/// A source, and a sink that takes what is copied and nothing out of a pipe.
struct Stuck(UnixStream);

impl Ends for Stuck {
    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }
    fn fill(&mut self, pipe: &mut Pipe, most: usize) -> io::Result<usize> {
        pipe.fill(self.0.as_fd(), most)
    }
    fn empty(&mut self, _: &mut Pipe) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }
    fn room(&mut self, _: usize) -> usize {
        usize::MAX
    }
    fn finish(&mut self) {}
}

#[test]
fn a_pipe_with_bytes_is_charged_as_a_whole_and_a_copy_of_them_by_its_size() {
    let (near, mut far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    let (mut ends, stats, mut direction) = (Stuck(near), Stats::new(1, 0, 0), Direction::new(1, false, None, None));
    let (mut buffer, mut events, mut pipes) = (vec![0; BUFFER], Vec::new(), PipePool::new(BUFFER));
    let mut turn = Turn { buffer: &mut buffer, pipes: &mut pipes, pool: &mut None, events: &mut events, now: 0 };
    // Large reads first: bulk is spliced.
    for size in [BUFFER, BUFFER, BUFFER, 40_000] {
        assert_eq!(stats.lanes[1].kept(), 0);
        far.write_all(&noise(size)).unwrap();
        direction.readable = true;
        assert_eq!(direction.turn(&mut ends, &stats, &mut turn), Step::Rest);
    }
    let held = stats.lanes[1].held();
    assert!(held > 0 && held <= 40_000);
    assert_eq!(stats.lanes[1].kept(), BUFFER as u64);
    turn.now = direction.unloads_at().unwrap();
    direction.unload(&stats, &mut turn);
    assert_eq!((stats.lanes[1].held(), stats.lanes[1].kept()), (held, held));
}

/// Urgent data in the middle of bulk, all of it there before the engine reads on; a FIN behind it if `ended`.
fn urgent_amid_bulk(ended: bool) {
    const OTHER_REASON: u32 = 2;
    let stand = Stand::new(1);
    let mut pair = stand.join();
    let bytes = noise(3_000_000);
    thread::scope(|scope| {
        let (mut broker, bytes) = (pair.broker.try_clone().unwrap(), &bytes);
        scope.spawn(move || broker.write_all(bytes).unwrap());
        assert!(read(&mut pair.client, bytes.len()) == *bytes);
    });
    let before = stand.record(&pair);
    assert!(before.spliced_bytes > 0, "{before:?}");
    stand.engine.pause(pair.id, 1, OTHER_REASON);
    let rest = noise(200_000);
    pair.broker.write_all(&rest[..40_000]).unwrap();
    send_urgent(&pair.broker, b'!');
    pair.broker.write_all(&rest[40_000..]).unwrap();
    if ended {
        pair.broker.shutdown(std::net::Shutdown::Write).unwrap();
    }
    thread::sleep(std::time::Duration::from_millis(50));
    stand.engine.resume(pair.id, 1, OTHER_REASON);
    let got = if ended { read_all(&mut pair.client) } else { read(&mut pair.client, rest.len()) };
    assert!(got == rest, "{} of {} bytes", got.len(), rest.len());
}

#[test]
fn bulk_goes_on_behind_urgent_data() {
    urgent_amid_bulk(false);
}

#[test]
fn urgent_data_in_front_of_an_end_is_no_end() {
    urgent_amid_bulk(true);
}

#[test]
fn a_thread_lends_so_many_pipes_and_no_more() {
    let mut pool = PipePool::new(100_000);
    let mut lent: Vec<_> = std::iter::from_fn(|| pool.take(0)).take(1_000).collect();
    assert_eq!((lent.len(), pool.alive()), (32, 32));
    // Sizes are rounded down, because the kernel rounds up.
    assert!(lent.iter().all(|pipe| pipe.capacity() == 65_536));
    pool.give_back(lent.pop().unwrap());
    assert!(pool.take(0).is_some());
    drop(lent);
    assert!(pool.take(0).is_some());
    assert_eq!(pool.alive(), 0);
    assert!(PipePool::new(4_096).take(0).is_none());
}
