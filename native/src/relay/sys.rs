//! The one place with unsafe code: thin safe wrappers of system calls that the standard library has no name for.
//!
//! Reading, writing, shutdown and SO_ERROR of sockets are the standard library's own (`TcpStream` takes any stream
//! socket). Every descriptor made here is CLOEXEC.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

pub use libc::epoll_event as EpollEvent;

/// All that a relayed socket is watched for, once per change: a level would wake a paused direction for ever.
/// Urgent data is watched for because a read stops in front of it, so that a short read says nothing there.
pub const RELAYED: u32 = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLPRI | libc::EPOLLET) as u32;
/// Watched for room to write, and the errors and hang-ups that cannot be masked.
pub const ROOM: u32 = (libc::EPOLLOUT | libc::EPOLLET) as u32;
/// Watched for errors and hang-ups only, which cannot be masked.
pub const QUIET: u32 = libc::EPOLLET as u32;
/// A socket may have bytes, or an end, or an error to be read.
pub const MAY_READ: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR | libc::EPOLLPRI) as u32;
/// More follows than what a short read shows.
pub const MORE_THAN_DATA: u32 = (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR | libc::EPOLLPRI) as u32;
/// The other side has sent its FIN.
pub const ENDED: u32 = libc::EPOLLRDHUP as u32;
/// A socket may take bytes, or fail to.
pub const MAY_WRITE: u32 = (libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR) as u32;
/// SO_ERROR has something to say.
pub const FAILED: u32 = libc::EPOLLERR as u32;

/// An event with nothing in it, to make room for those that the kernel writes.
pub const NO_EVENT: EpollEvent = EpollEvent { events: 0, u64: 0 };

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn checked_size(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn owned(result: libc::c_int) -> io::Result<OwnedFd> {
    let fd = checked(result)?;
    // SAFETY: the kernel has just made this descriptor for us; nobody else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes a descriptor that Python hands over. The caller must own it and must not use it any more.
pub fn adopt(fd: RawFd) -> OwnedFd {
    // SAFETY: the contract of RelayEngine.join and close_pages gives the descriptor to the engine. `epoll_ctl` has
    // accepted sockets before, so that they are open; the pages are those of a body that Python has open. A caller that
    // breaks the contract closes a descriptor too many, but no memory is at risk.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Gives a descriptor back to its owner: it stays open.
pub fn give_back(fd: OwnedFd) {
    let _ = std::os::fd::IntoRawFd::into_raw_fd(fd);
}

/// Makes an epoll set.
pub fn epoll() -> io::Result<OwnedFd> {
    // SAFETY: no pointer is passed.
    owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
}

/// Makes an eventfd that never blocks.
pub fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: no pointer is passed.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
}

fn control(set: &OwnedFd, operation: libc::c_int, fd: RawFd, events: u32, token: u64) -> io::Result<()> {
    let mut event = EpollEvent { events, u64: token };
    // SAFETY: `event` lives through the call, which only reads it; a wrong `fd` is an error code.
    checked(unsafe { libc::epoll_ctl(set.as_raw_fd(), operation, fd, &mut event) }).map(|_| ())
}

/// Adds a descriptor to an epoll set; fails if the set has it already.
pub fn epoll_add(set: &OwnedFd, fd: RawFd, events: u32, token: u64) -> io::Result<()> {
    control(set, libc::EPOLL_CTL_ADD, fd, events, token)
}

/// Changes what a descriptor is watched for; what is the case already is reported anew.
pub fn epoll_modify(set: &OwnedFd, fd: RawFd, events: u32, token: u64) -> io::Result<()> {
    control(set, libc::EPOLL_CTL_MOD, fd, events, token)
}

/// Removes a descriptor. A mere close would not do: another descriptor of the same socket keeps its entry alive.
pub fn epoll_remove(set: &OwnedFd, fd: RawFd) -> io::Result<()> {
    control(set, libc::EPOLL_CTL_DEL, fd, 0, 0)
}

/// Waits for events; an interrupted wait gives none.
pub fn epoll_wait(set: &OwnedFd, events: &mut [EpollEvent], timeout_ms: i32) -> io::Result<usize> {
    let most = libc::c_int::try_from(events.len()).unwrap_or(libc::c_int::MAX);
    // SAFETY: the kernel writes at most `most` events into the slice, which has room for them.
    let count = unsafe { libc::epoll_wait(set.as_raw_fd(), events.as_mut_ptr(), most, timeout_ms) };
    match checked(count) {
        Ok(count) => Ok(count as usize),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        Err(error) => Err(error),
    }
}

/// Adds one to an eventfd. A full counter is readable already: the error is of no use.
pub fn wake(eventfd: &OwnedFd) {
    let one = 1u64;
    // SAFETY: eight bytes of a live variable are read.
    unsafe { libc::write(eventfd.as_raw_fd(), (&raw const one).cast(), 8) };
}

/// Sets an eventfd back to zero.
pub fn clear(eventfd: &OwnedFd) {
    let mut count = 0u64;
    // SAFETY: eight bytes are written into a live variable.
    unsafe { libc::read(eventfd.as_raw_fd(), (&raw mut count).cast(), 8) };
}

/// Makes a pipe of at most `most` bytes; fails when the user has no pages left for a pipe of that size.
pub fn pipe(most: usize) -> io::Result<(OwnedFd, OwnedFd, usize)> {
    let mut fds = [0; 2];
    // SAFETY: the kernel writes two descriptors into the array.
    checked(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) })?;
    let (read, write) = (owned(fds[0])?, owned(fds[1])?);
    let wanted = libc::c_int::try_from(most).unwrap_or(libc::c_int::MAX);
    // SAFETY: no pointer is passed.
    let size = checked(unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, wanted) })?;
    Ok((read, write, size as usize))
}

/// Moves at most `most` bytes between a pipe and a socket without copying them. Never blocks.
pub fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
    let (null, flags) = (std::ptr::null_mut(), libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK);
    // SAFETY: both offsets are null, as they must be for pipes and sockets; no other pointer is passed.
    checked_size(unsafe { libc::splice(from.as_raw_fd(), null, to.as_raw_fd(), null, most, flags) })
}

/// Sends at most `most` bytes of a file from `position` on, without copying them. Blocks only if the socket does.
pub fn send_pages(to: BorrowedFd<'_>, pages: BorrowedFd<'_>, position: u64, most: usize) -> io::Result<usize> {
    let mut offset = position as libc::off_t;
    // SAFETY: the kernel reads and writes one live offset; wrong descriptors are an error code.
    checked_size(unsafe { libc::sendfile(to.as_raw_fd(), pages.as_raw_fd(), &raw mut offset, most) })
}

/// Sends bytes that others follow at once; never blocks.
pub fn send_more(to: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE;
    // SAFETY: the kernel reads a live slice of that length.
    checked_size(unsafe { libc::send(to.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) })
}

/// Makes another descriptor of the same file or socket.
pub fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: no pointer is passed; a wrong `fd` is an error code.
    owned(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) })
}

/// Returns the bytes in the kernel's send queue that the peer has not acknowledged; 0 if the kernel won't say.
pub fn unsent(socket: BorrowedFd<'_>) -> usize {
    let mut count: libc::c_int = 0;
    // SAFETY: SIOCOUTQ, whose other name is TIOCOUTQ (tcp(7)), writes one int.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &mut count) };
    if result < 0 {
        0
    } else {
        usize::try_from(count).unwrap_or(0)
    }
}

/// Bytes of the send queue that are not sent yet (linux/sockios.h); the C library does not name it.
const SIOCOUTQNSD: libc::Ioctl = 0x894B;
/// A socket's memory (asm-generic/socket.h); the C library does not name it.
const SO_MEMINFO: libc::c_int = 55;
const RECEIVED: usize = 0;
const SEND_BUFFER: usize = 3;
const AHEAD: usize = 4;
const QUEUED: usize = 5;
const BACKLOG: usize = 7;
const NUMBERS: usize = 8;

fn meminfo(socket: BorrowedFd<'_>) -> [u32; NUMBERS] {
    let mut numbers = [0u32; NUMBERS];
    let mut size = size_of_val(&numbers) as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes into a live array of that size.
    unsafe {
        let into = numbers.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_MEMINFO, into, &mut size);
    }
    numbers
}

/// Returns the kernel memory of a socket: both queues, the backlog and what is allocated ahead; and its part that was
/// received and nobody has read.
pub fn socket_memory(socket: BorrowedFd<'_>) -> (usize, usize) {
    let numbers = meminfo(socket);
    // The kernel takes from what is allocated ahead first and allocates then: below zero for a moment.
    let ahead = usize::try_from(numbers[AHEAD] as i32).unwrap_or(0);
    let [received, queued, backlog] = [RECEIVED, QUEUED, BACKLOG].map(|index| numbers[index] as usize);
    (ahead + received + queued + backlog, received + backlog)
}

/// Bounds the kernel's receive buffer, which ends its autotuning; the kernel doubles the size. An error leaves it as it
/// is.
pub fn set_receive_buffer(socket: BorrowedFd<'_>, bytes: usize) {
    set_int(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX));
}

/// Lets the window that is announced grow to `bytes`: a larger receive buffer alone does not do that on a live socket.
pub fn set_window_clamp(socket: BorrowedFd<'_>, bytes: usize) {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set_int(socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, bytes);
}

/// Which buffers were set, and so are not autotuned (asm-generic/socket.h, Linux 5.15).
const SO_BUF_LOCK: libc::c_int = 72;
const RECEIVE_LOCKED: libc::c_int = 2;

/// Has the kernel tune the receive buffer again.
pub fn tune_receive_buffer(socket: BorrowedFd<'_>) {
    if let Some(locked) = locked_buffers(socket) {
        set_int(socket, libc::SOL_SOCKET, SO_BUF_LOCK, locked & !RECEIVE_LOCKED);
    }
}

/// Returns whether somebody has set the receive buffer.
#[cfg(test)]
pub fn receive_buffer_is_set(socket: BorrowedFd<'_>) -> bool {
    locked_buffers(socket).is_some_and(|locked| locked & RECEIVE_LOCKED != 0)
}

/// Returns the largest window that the kernel announces.
#[cfg(test)]
pub fn window_clamp(socket: BorrowedFd<'_>) -> usize {
    get_int(socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP).unwrap_or(0) as usize
}

/// Returns which buffers were set; None from a kernel that does not know.
fn locked_buffers(socket: BorrowedFd<'_>) -> Option<libc::c_int> {
    get_int(socket, libc::SOL_SOCKET, SO_BUF_LOCK)
}

fn get_int(socket: BorrowedFd<'_>, level: libc::c_int, option: libc::c_int) -> Option<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut size = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes into a live variable of that size.
    let result = unsafe {
        let into = (&raw mut value).cast();
        libc::getsockopt(socket.as_raw_fd(), level, option, into, &mut size)
    };
    (result == 0).then_some(value)
}

fn set_int(socket: BorrowedFd<'_>, level: libc::c_int, option: libc::c_int, value: libc::c_int) {
    let size = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the kernel reads `size` bytes of a live variable of that size.
    unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), size);
    }
}

/// Returns the bound of the kernel's receive buffer.
#[cfg(test)]
pub fn receive_buffer(socket: BorrowedFd<'_>) -> usize {
    meminfo(socket)[1] as usize
}

/// Returns how many bytes a socket's send queue takes at once; 0 if it is full, and then an edge follows when it is
/// not: a poll arms it. `unsent_most` is the socket's TCP_NOTSENT_LOWAT, 0 for none. A socket that has failed takes
/// anything: the write says so.
pub fn room(socket: BorrowedFd<'_>, unsent_most: usize) -> usize {
    let mut asked = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: one live structure, and no time-out.
    unsafe { libc::poll(&mut asked, 1, 0) };
    if asked.revents & (libc::POLLERR | libc::POLLHUP) != 0 {
        return usize::MAX;
    }
    if asked.revents & libc::POLLOUT == 0 {
        return 0;
    }
    let numbers = meminfo(socket);
    // Bookkeeping takes as much again in the worst case.
    let mut room = (numbers[SEND_BUFFER].saturating_sub(numbers[QUEUED]) / 2) as usize;
    if unsent_most > 0 {
        let mut count: libc::c_int = 0;
        // SAFETY: the call writes one int; for a socket that is not TCP's it fails and writes nothing.
        unsafe { libc::ioctl(socket.as_raw_fd(), SIOCOUTQNSD, &mut count) };
        room = room.min(unsent_most.saturating_sub(usize::try_from(count).unwrap_or(0)));
    }
    room.max(1)
}

/// Returns the bytes that wait in the kernel to be read; 0 if the kernel won't say.
pub fn unread(socket: BorrowedFd<'_>) -> usize {
    let mut count: libc::c_int = 0;
    // SAFETY: FIONREAD, whose other name is SIOCINQ (tcp(7)), writes one int.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::FIONREAD, &mut count) };
    if result < 0 {
        0
    } else {
        usize::try_from(count).unwrap_or(0)
    }
}

/// Returns the seconds of the monotonic clock, which is also that of Python's loops.
pub fn monotonic_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Makes the next close send an RST and drop what is unsent. The option belongs to the socket, not to a descriptor: set
/// it only right before its last descriptor is closed.
pub fn reset_on_close(socket: BorrowedFd<'_>) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let size = size_of::<libc::linger>() as libc::socklen_t;
    // SAFETY: the kernel reads `size` bytes of a live structure of that size.
    unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), size)
    };
}

/// Runs `start` with all signals blocked: threads started by it inherit that. Python's handlers run on its own threads
/// only, and a signal to one of ours would interrupt nothing that could answer it.
pub fn with_signals_blocked<T>(start: impl FnOnce() -> T) -> T {
    let mut before = empty_signal_set();
    let mut all = empty_signal_set();
    // SAFETY: both sets are live and initialized; the mask is of this thread only.
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
    }
    let result = start();
    // SAFETY: as above; `before` was written by the first call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    result
}

fn empty_signal_set() -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: sigemptyset initializes the whole set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

/// Makes an anonymous file in memory.
#[cfg(test)]
pub fn memory_file() -> io::Result<OwnedFd> {
    // SAFETY: the name is a constant that ends with a zero.
    owned(unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC) })
}

/// Returns the processor time of the calling thread in microseconds.
#[cfg(test)]
pub fn thread_cpu_micros() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}

/// Raises the limit of descriptors as far as it goes, and returns it.
#[cfg(test)]
pub fn most_descriptors() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes, then reads, one structure.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
    limit.rlim_cur
}

/// Sets the kernel's buffers of a socket, both ways.
#[cfg(test)]
pub fn set_buffers(socket: BorrowedFd<'_>, bytes: i32) {
    for option in [libc::SO_SNDBUF, libc::SO_RCVBUF] {
        set_int(socket, libc::SOL_SOCKET, option, bytes);
    }
}

/// Sends one urgent byte.
#[cfg(test)]
pub fn send_urgent(socket: &std::net::TcpStream, byte: u8) {
    // SAFETY: one byte of a live variable is read.
    unsafe { libc::send(socket.as_raw_fd(), (&raw const byte).cast(), 1, libc::MSG_OOB) };
}

/// Ends a connection whose bytes are not taken for this long.
#[cfg(test)]
pub fn set_user_timeout(socket: &std::net::TcpStream, ms: i32) {
    let size = size_of::<i32>() as libc::socklen_t;
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT);
    // SAFETY: the kernel reads `size` bytes of a live variable of that size.
    unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const ms).cast(), size) };
}

/// Bounds what the kernel keeps for a peer beside the bytes under way; 0 ends the bound.
#[cfg(test)]
pub fn set_unsent(socket: &std::net::TcpStream, bytes: i32) {
    let size = size_of::<i32>() as libc::socklen_t;
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT);
    // SAFETY: the kernel reads `size` bytes of a live variable of that size.
    unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const bytes).cast(), size) };
}
