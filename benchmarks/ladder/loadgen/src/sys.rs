//! The few system calls that the standard library does not offer: epoll, writev, limits, a receive buffer set
//! before connect, the CPU time of another process, splice. 64-bit Linux only. Knows nothing of Pulsar.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

pub const IN: u32 = 0x001;
pub const OUT: u32 = 0x004;
pub const HANGUP: u32 = 0x008 | 0x010;

const EPOLL_CTL_ADD: i32 = 1;
const EPOLL_CTL_DEL: i32 = 2;
const EPOLL_CTL_MOD: i32 = 3;
const RLIMIT_NOFILE: i32 = 7;
const PR_SET_PDEATHSIG: i32 = 1;
const SIGTERM: u64 = 15;
const AF_INET: i32 = 2;
const SOCK_STREAM_CLOEXEC: i32 = 1 | 0o2000000;
const SOCK_NONBLOCK: i32 = 0o4000;
const EINPROGRESS: i32 = 115;
const SOL_SOCKET: i32 = 1;
const SO_SNDBUF: i32 = 7;
const SO_RCVBUF: i32 = 8;
const O_NONBLOCK_CLOEXEC: i32 = 0o4000 | 0o2000000;
const F_SETPIPE_SZ: i32 = 1031;
const SPLICE_F_MOVE_NONBLOCK: u32 = 1 | 2;

/// The kernel packs this structure on x86-64 only.
#[cfg_attr(target_arch = "x86_64", repr(C, packed))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C))]
#[derive(Clone, Copy, Default)]
pub struct Event {
    pub events: u32,
    pub token: u64,
}

#[repr(C)]
struct Limit {
    soft: u64,
    hard: u64,
}

#[repr(C)]
#[derive(Default)]
struct Time {
    seconds: i64,
    nanoseconds: i64,
}

#[repr(C)]
struct SocketAddress {
    family: u16,
    port: u16,
    address: u32,
    zero: [u8; 8],
}

impl From<SocketAddrV4> for SocketAddress {
    fn from(address: SocketAddrV4) -> SocketAddress {
        SocketAddress {
            family: AF_INET as u16,
            port: address.port().to_be(),
            address: u32::from_ne_bytes(address.ip().octets()),
            zero: [0; 8],
        }
    }
}

extern "C" {
    fn epoll_create1(flags: i32) -> i32;
    fn epoll_ctl(epoll: i32, operation: i32, fd: i32, event: *mut Event) -> i32;
    fn epoll_wait(epoll: i32, events: *mut Event, capacity: i32, timeout_ms: i32) -> i32;
    fn getrlimit(resource: i32, limit: *mut Limit) -> i32;
    fn setrlimit(resource: i32, limit: *const Limit) -> i32;
    fn prctl(option: i32, argument: u64, a: u64, b: u64, c: u64) -> i32;
    fn socket(domain: i32, kind: i32, protocol: i32) -> i32;
    fn setsockopt(fd: i32, level: i32, option: i32, value: *const i32, length: u32) -> i32;
    fn bind(fd: i32, address: *const SocketAddress, length: u32) -> i32;
    fn connect(fd: i32, address: *const SocketAddress, length: u32) -> i32;
    fn listen(fd: i32, backlog: i32) -> i32;
    fn pipe2(ends: *mut i32, flags: i32) -> i32;
    fn fcntl(fd: i32, command: i32, argument: i32) -> i32;
    fn splice(from: i32, at: *mut i64, to: i32, at_to: *mut i64, bytes: usize, flags: u32) -> isize;
    fn clock_getcpuclockid(pid: i32, clock: *mut i32) -> i32;
    fn clock_gettime(clock: i32, time: *mut Time) -> i32;
}

/// The CPU time that all threads of a process have had, those included that have ended.
pub fn cpu_time(pid: u64) -> io::Result<Duration> {
    let (mut clock, mut time) = (0, Time::default());
    let failure = unsafe { clock_getcpuclockid(pid as i32, &mut clock) };
    if failure != 0 {
        return Err(io::Error::from_raw_os_error(failure));
    }
    checked(unsafe { clock_gettime(clock, &mut time) })?;
    Ok(Duration::new(time.seconds as u64, time.nanoseconds as u32))
}

fn checked(result: i32) -> io::Result<i32> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// A level-triggered epoll instance; it lives as long as the process.
pub struct Epoll {
    fd: RawFd,
}

impl Epoll {
    pub fn new() -> io::Result<Epoll> {
        Ok(Epoll { fd: checked(unsafe { epoll_create1(0) })? })
    }

    pub fn add(&self, source: &impl AsRawFd, events: u32, token: u64) -> io::Result<()> {
        self.control(EPOLL_CTL_ADD, source.as_raw_fd(), events, token)
    }

    pub fn modify(&self, source: &impl AsRawFd, events: u32, token: u64) -> io::Result<()> {
        self.control(EPOLL_CTL_MOD, source.as_raw_fd(), events, token)
    }

    pub fn remove(&self, source: &impl AsRawFd) -> io::Result<()> {
        self.control(EPOLL_CTL_DEL, source.as_raw_fd(), 0, 0)
    }

    fn control(&self, operation: i32, fd: RawFd, events: u32, token: u64) -> io::Result<()> {
        let mut event = Event { events, token };
        checked(unsafe { epoll_ctl(self.fd, operation, fd, &mut event) }).map(|_| ())
    }

    /// Wait for events; a signal counts as "none".
    pub fn wait(&self, events: &mut [Event], timeout_ms: i32) -> io::Result<usize> {
        let capacity = events.len() as i32;
        let count = unsafe { epoll_wait(self.fd, events.as_mut_ptr(), capacity, timeout_ms) };
        match checked(count) {
            Ok(count) => Ok(count as usize),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error),
        }
    }
}

/// A pipe that bytes go through from socket to socket without being copied.
pub struct Pipe {
    reading: OwnedFd,
    writing: OwnedFd,
    capacity: usize,
    /// Bytes that are in it.
    pub held: usize,
}

impl Pipe {
    /// As large as asked for, or as large as the kernel makes it unasked where it allows no more.
    pub fn new(capacity: usize) -> io::Result<Pipe> {
        let mut ends = [0; 2];
        checked(unsafe { pipe2(ends.as_mut_ptr(), O_NONBLOCK_CLOEXEC) })?;
        let [reading, writing] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        unsafe { fcntl(writing.as_raw_fd(), F_SETPIPE_SZ, capacity as i32) };
        Ok(Pipe { reading, writing, capacity, held: 0 })
    }

    /// Move in what a socket has; 0 at its end. Only into an empty pipe: a full one, too, would block.
    pub fn fill(&mut self, source: &impl AsRawFd) -> io::Result<usize> {
        let count = moved(source.as_raw_fd(), self.writing.as_raw_fd(), self.capacity)?;
        self.held += count;
        Ok(count)
    }

    /// Move out what a socket takes.
    pub fn drain(&mut self, target: &impl AsRawFd) -> io::Result<usize> {
        let count = moved(self.reading.as_raw_fd(), target.as_raw_fd(), self.held)?;
        self.held -= count;
        Ok(count)
    }
}

fn moved(from: RawFd, to: RawFd, bytes: usize) -> io::Result<usize> {
    let nowhere = ptr::null_mut();
    let count = unsafe { splice(from, nowhere, to, nowhere, bytes, SPLICE_F_MOVE_NONBLOCK) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Raise the soft limit of open files to the hard one.
pub fn raise_open_files() -> io::Result<()> {
    let mut limit = Limit { soft: 0, hard: 0 };
    checked(unsafe { getrlimit(RLIMIT_NOFILE, &mut limit) })?;
    limit.soft = limit.hard;
    checked(unsafe { setrlimit(RLIMIT_NOFILE, &limit) }).map(|_| ())
}

/// End this process when its parent ends, so that a killed runner leaves nobody behind.
pub fn die_with_parent() -> io::Result<()> {
    checked(unsafe { prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) }).map(|_| ())
}

/// Ask for a longer accept queue than the standard library does: a storm connects at once.
pub fn deepen_backlog(listener: &impl AsRawFd, backlog: i32) -> io::Result<()> {
    checked(unsafe { listen(listener.as_raw_fd(), backlog) }).map(|_| ())
}

/// Connect from an address, and with SO_RCVBUF set before the handshake, where it still decides the window that is
/// offered.
pub fn connect_as(
    address: SocketAddrV4,
    receive_buffer_bytes: Option<i32>,
    source: Option<Ipv4Addr>,
) -> io::Result<TcpStream> {
    let stream = open_socket(SOCK_STREAM_CLOEXEC)?;
    if let Some(bytes) = receive_buffer_bytes {
        set_receive_buffer(&stream, bytes)?;
    }
    if let Some(source) = source {
        let own = SocketAddress::from(SocketAddrV4::new(source, 0));
        checked(unsafe { bind(stream.as_raw_fd(), &own, 16) })?;
    }
    begin_to_connect(&stream, address)?;
    Ok(stream)
}

/// Set SO_RCVBUF of a connection: the window scale is fixed by then, but not how much is taken.
pub fn set_receive_buffer(socket: &impl AsRawFd, bytes: i32) -> io::Result<()> {
    checked(unsafe { setsockopt(socket.as_raw_fd(), SOL_SOCKET, SO_RCVBUF, &bytes, 4) })?;
    Ok(())
}

/// Set SO_SNDBUF: what a peer does not take is then nobody else's memory.
pub fn set_send_buffer(socket: &impl AsRawFd, bytes: i32) -> io::Result<()> {
    checked(unsafe { setsockopt(socket.as_raw_fd(), SOL_SOCKET, SO_SNDBUF, &bytes, 4) })?;
    Ok(())
}

/// Begin to connect and wait for nothing: the socket is writable once it is connected.
pub fn connect_later(address: SocketAddrV4) -> io::Result<TcpStream> {
    let stream = open_socket(SOCK_STREAM_CLOEXEC | SOCK_NONBLOCK)?;
    match begin_to_connect(&stream, address) {
        Err(error) if error.raw_os_error() != Some(EINPROGRESS) => Err(error),
        _ => stream.set_nodelay(true).map(|()| stream),
    }
}

fn open_socket(kind: i32) -> io::Result<TcpStream> {
    let fd = checked(unsafe { socket(AF_INET, kind, 0) })?;
    Ok(unsafe { TcpStream::from_raw_fd(fd) })
}

fn begin_to_connect(stream: &TcpStream, address: SocketAddrV4) -> io::Result<()> {
    let target = SocketAddress::from(address);
    checked(unsafe { connect(stream.as_raw_fd(), &target, 16) }).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_peer_sees_the_address_that_a_client_connects_from() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string().parse().unwrap();
        for source in [None, Some(Ipv4Addr::new(127, 0, 0, 2))] {
            let _client = connect_as(address, Some(8192), source).unwrap();
            let expected = source.unwrap_or(Ipv4Addr::LOCALHOST);
            assert_eq!(listener.accept().unwrap().1.ip(), expected);
        }
    }
}
