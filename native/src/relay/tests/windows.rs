//! Receive windows: narrow until the receiver has taken bytes, narrow again while memory is short.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::{tcp, until, Joined, Stand, BUFFER, NO_LIMITS};
use crate::relay::engine::Limits;
use crate::relay::sys;
use crate::relay::windows::{Window, Windows, NARROW_BYTES, PROVEN_BYTES};

/// A pair whose broker's window is narrow, as a relay of the proxy begins, and another handle of that socket.
fn join(stand: &Stand) -> (Joined, TcpStream) {
    let (client, broker) = (tcp(), tcp());
    sys::set_receive_buffer(broker.0.as_fd(), NARROW_BYTES);
    // What a stopped client takes must be no proof that its program reads.
    sys::set_unsent(&client.0, BUFFER as i32);
    sys::set_buffers(client.1.as_fd(), 16 * 1024);
    let other = broker.0.try_clone().unwrap();
    (stand.join_sockets(client, broker, b"", b"", false), other)
}

fn stand() -> Stand {
    Stand::limited(1, BUFFER, Limits { narrow_windows: true, ..NO_LIMITS })
}

fn pass(pair: &mut Joined, bytes: usize) {
    let mut buffer = vec![7; BUFFER];
    for _ in 0..bytes.div_ceil(BUFFER) {
        pair.broker.write_all(&buffer).unwrap();
        pair.client.read_exact(&mut buffer).unwrap();
    }
}

/// Sends until nothing is taken for a while: the client does not read.
fn stall(pair: &mut Joined) {
    pair.broker.set_nonblocking(true).unwrap();
    let (buffer, mut still) = (vec![7; BUFFER], 0);
    while still < 50 {
        match pair.broker.write(&buffer) {
            Ok(count) if count > 0 => still = 0,
            _ => {
                still += 1;
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        }
    }
}

fn is_narrow(socket: &TcpStream) -> bool {
    sys::receive_buffer_is_set(socket.as_fd())
}

fn size(socket: &TcpStream) -> usize {
    sys::receive_buffer(socket.as_fd())
}

#[test]
fn the_kernel_tunes_the_buffer_again_of_whom_takes_bytes() {
    let stand = stand();
    let (mut pair, broker) = join(&stand);
    assert!(is_narrow(&broker));
    pass(&mut pair, 2 * PROVEN_BYTES as usize);
    until("autotuning", || !is_narrow(&broker));
}

#[test]
fn a_window_that_was_earned_may_be_as_large_as_it_should() {
    let (socket, _other) = tcp();
    sys::set_receive_buffer(socket.as_fd(), NARROW_BYTES);
    let mut window = Window::new(Some(&Arc::new(Windows::default())), true);
    window.prove(PROVEN_BYTES - 1, socket.as_fd());
    assert!(sys::window_clamp(socket.as_fd()) <= 2 * NARROW_BYTES);
    window.prove(PROVEN_BYTES, socket.as_fd());
    // A larger buffer alone leaves the window as it was.
    assert_eq!(sys::window_clamp(socket.as_fd()), PROVEN_BYTES as usize);
}

#[test]
fn while_memory_is_short_nothing_is_widened_and_one_that_stands_still_is_narrowed() {
    let stand = stand();
    let (mut early, of_early) = join(&stand);
    pass(&mut early, 2 * PROVEN_BYTES as usize);
    until("a wide window", || !is_narrow(&of_early));
    stand.engine.set_tight(true);
    let (mut late, of_late) = join(&stand);
    pass(&mut late, 2 * PROVEN_BYTES as usize);
    assert_eq!(size(&of_late), 2 * NARROW_BYTES);
    stall(&mut early);
    until("no more than is there", || {
        let (held, _) = sys::socket_memory(of_early.as_fd());
        is_narrow(&of_early) && size(&of_early) <= held.max(2 * NARROW_BYTES)
    });
    stand.engine.set_tight(false);
    pass(&mut late, PROVEN_BYTES as usize);
    until("a wide window", || !is_narrow(&of_late));
}
