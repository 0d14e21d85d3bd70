//! A bare relay: the least that anything between client and broker costs. It copies with reads of 64 KiB, splices
//! through a pipe, or opens and seals TLS on the client's side; it looks at no byte otherwise and keeps no account. What
//! a real proxy does beyond that is its own price. One thread accepts, connects and shakes hands, and has nothing to do
//! afterwards; the others carry the bytes.

use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::net::{Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use crate::args::Args;
use crate::credentials::Identity;
use crate::link::Link;
use crate::sys::{self, Epoll, Event, Pipe};
use crate::tls::Tls;

const READ_BYTES: usize = 64 * 1024;
const PIPE_BYTES: usize = 256 * 1024;
/// Reads of one direction before the next connection has its turn.
const READS: usize = 16;
const BELL: u64 = u64::MAX;

/// What one direction has taken and the other side has not: nothing, most of the time.
enum Held {
    Copied(Vec<u8>),
    Piped(Pipe),
}

/// One direction of a pair.
struct Way {
    held: Held,
    /// The source has ended, and the other side was told.
    ended: bool,
}

/// A client and its connection to the broker; `ways[i]` carries from `sides[i]` to the other.
struct Pair {
    sides: [Link; 2],
    ways: [Way; 2],
    interest: [u32; 2],
}

struct Worker {
    epoll: Epoll,
    inbox: Receiver<Pair>,
    bell: UnixStream,
    pairs: Vec<Option<Pair>>,
    free: Vec<usize>,
}

/// Carry between `--port` and `--broker` with `--threads` threads until the process is ended.
pub fn run(args: &Args) -> Result<(), String> {
    let broker = args.loopback("broker")?.ok_or("got no --broker, expected 127.0.0.1:PORT")?;
    let (port, threads) = (args.number("port", 0)? as u16, args.number("threads", 1)?.max(1));
    let opened = TcpListener::bind(("127.0.0.1", port));
    let files = args.optional("certificate").zip(args.optional("key"));
    let identity = files.map(|(certificate, key)| Identity::from_files(certificate, key)).transpose()?;
    let splice = args.switch("splice");
    let served =
        opened.and_then(|listener| serve(&listener, broker, threads as usize, splice, identity.as_ref()));
    served.map_err(|error| format!("bare: {error}"))
}

fn serve(
    listener: &TcpListener,
    broker: SocketAddrV4,
    threads: usize,
    splice: bool,
    identity: Option<&Identity>,
) -> io::Result<()> {
    sys::deepen_backlog(listener, 4096)?;
    let workers = (0..threads).map(|_| Worker::start()).collect::<io::Result<Vec<_>>>()?;
    for (inbox, mut bell) in workers.iter().cycle().map(|(inbox, bell)| (inbox, bell)) {
        let (client, _) = listener.accept()?;
        // A broker that refuses, or a failed handshake: the client is closed, and the next one comes.
        let Ok(pair) = shaken(client, identity)
            .and_then(|client| Pair::new(client, TcpStream::connect(broker)?.into(), splice))
        else {
            continue;
        };
        inbox.send(pair).map_err(|_| io::Error::other("a thread has ended"))?;
        bell.write_all(&[1])?;
    }
    Ok(())
}

/// Shake hands with a client, if TLS is spoken.
fn shaken(client: TcpStream, identity: Option<&Identity>) -> io::Result<Link> {
    let Some(identity) = identity else { return Ok(client.into()) };
    client.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut link = Link::secured(client, Tls::server(identity)?);
    link.shake()?;
    Ok(link)
}

impl Worker {
    /// Start a thread; give what brings it pairs, and what tells it to look.
    fn start() -> io::Result<(Sender<Pair>, UnixStream)> {
        let ((sender, inbox), (ours, bell)) = (mpsc::channel(), UnixStream::pair()?);
        bell.set_nonblocking(true)?;
        let epoll = Epoll::new()?;
        epoll.add(&bell, sys::IN, BELL)?;
        let mut worker = Worker { epoll, inbox, bell, pairs: Vec::new(), free: Vec::new() };
        thread::spawn(move || worker.turn());
        Ok((sender, ours))
    }

    fn turn(&mut self) -> io::Result<()> {
        let mut buffer = vec![0u8; READ_BYTES];
        let mut events = [Event::default(); 256];
        loop {
            let count = self.epoll.wait(&mut events, -1)?;
            for event in events.iter().take(count).copied() {
                if event.token == BELL {
                    self.welcome(&mut buffer)?;
                } else {
                    self.serve(
                        (event.token / 2) as usize,
                        (event.token % 2) as usize,
                        event.events,
                        &mut buffer,
                    );
                }
            }
        }
    }

    fn welcome(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        if self.bell.read(buffer)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        while let Ok(pair) = self.inbox.try_recv() {
            let slot = self.free.pop().unwrap_or_else(|| {
                self.pairs.push(None);
                self.pairs.len() - 1
            });
            for (side, stream) in pair.sides.iter().enumerate() {
                self.epoll.add(stream, sys::IN, (2 * slot + side) as u64)?;
            }
            self.pairs[slot] = Some(pair);
            // What came with the end of a handshake is decrypted already, and no event tells of it.
            self.serve(slot, 0, sys::IN, buffer);
        }
        Ok(())
    }

    fn serve(&mut self, slot: usize, side: usize, events: u32, buffer: &mut [u8]) {
        let Some(mut pair) = self.pairs[slot].take() else { return };
        let step = pair.step(side, events, buffer).and_then(|()| pair.watch(&self.epoll, slot));
        match step {
            Ok(()) if !pair.over() => self.pairs[slot] = Some(pair),
            _ => self.free.push(slot), // dropping the streams closes them
        }
    }
}

impl Pair {
    fn new(client: Link, broker: Link, splice: bool) -> io::Result<Pair> {
        let mut sides = [client, broker];
        for side in &mut sides {
            side.socket().set_nodelay(true)?;
            side.set_polled()?;
        }
        Ok(Pair { sides, ways: [Way::new(splice)?, Way::new(splice)?], interest: [sys::IN; 2] })
    }

    fn over(&self) -> bool {
        self.ways.iter().all(|way| way.ended)
    }

    fn step(&mut self, side: usize, events: u32, buffer: &mut [u8]) -> io::Result<()> {
        let Pair { sides: [client, broker], ways: [to_broker, to_client], .. } = self;
        let (here, there, from_here, from_there) = match side {
            0 => (client, broker, to_broker, to_client),
            _ => (broker, client, to_client, to_broker),
        };
        if events & (sys::OUT | sys::HANGUP) != 0 {
            from_there.pass(there, here, buffer)?;
        }
        if events & (sys::IN | sys::HANGUP) != 0 {
            from_here.pass(here, there, buffer)?;
        }
        Ok(())
    }

    /// Ask for the events that can bring something: no reading of what cannot be passed on. A side that nothing is asked
    /// of is not watched at all, because its hang-up would be told over and over.
    fn watch(&mut self, epoll: &Epoll, slot: usize) -> io::Result<()> {
        for side in [0, 1] {
            let (from, to) = (&self.ways[side], &self.ways[1 - side]);
            let (full_there, full_here) = (self.sides[1 - side].unsent(), self.sides[side].unsent());
            let reading = if from.ended || from.blocked() || full_there { 0 } else { sys::IN };
            let interest = reading | if to.blocked() || full_here { sys::OUT } else { 0 };
            let (stream, token) = (&self.sides[side], (2 * slot + side) as u64);
            match (mem::replace(&mut self.interest[side], interest), interest) {
                (before, now) if before == now => {}
                (0, now) => epoll.add(stream, now, token)?,
                (_, 0) => epoll.remove(stream)?,
                (_, now) => epoll.modify(stream, now, token)?,
            }
        }
        Ok(())
    }
}

impl Way {
    fn new(splice: bool) -> io::Result<Way> {
        let held = if splice { Held::Piped(Pipe::new(PIPE_BYTES)?) } else { Held::Copied(Vec::new()) };
        Ok(Way { held, ended: false })
    }

    fn blocked(&self) -> bool {
        match &self.held {
            Held::Copied(rest) => !rest.is_empty(),
            Held::Piped(pipe) => pipe.held > 0,
        }
    }

    /// Carry what is there, until there is no more, no room for it, or others are due.
    fn pass(&mut self, from: &mut Link, to: &mut Link, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..READS {
            self.flush(to)?;
            if self.ended || self.blocked() || to.unsent() {
                return Ok(());
            }
            match self.take(from, to, buffer) {
                Ok(0) => {
                    self.ended = true;
                    let _ = to.socket().shutdown(Shutdown::Write); // fails if that side has gone, which its own way will find
                }
                Ok(count) if count < buffer.len() => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Take once and pass it on as far as there is room; give how much was taken, 0 at the source's end.
    fn take(&mut self, from: &mut Link, to: &mut Link, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.held {
            Held::Copied(rest) => {
                let count = from.read(buffer)?;
                let written = unless_full((count > 0).then(|| to.write(&buffer[..count])))?;
                rest.extend_from_slice(&buffer[written..count]);
                Ok(count)
            }
            Held::Piped(pipe) => {
                let count = pipe.fill(from.socket())?;
                unless_full((count > 0).then(|| pipe.drain(to.socket())))?;
                Ok(count)
            }
        }
    }

    fn flush(&mut self, to: &mut Link) -> io::Result<()> {
        if !to.flushed()? {
            return Ok(());
        }
        match &mut self.held {
            Held::Copied(rest) => {
                let written = unless_full((!rest.is_empty()).then(|| to.write(rest)))?;
                rest.drain(..written);
            }
            Held::Piped(pipe) => {
                unless_full((pipe.held > 0).then(|| pipe.drain(to.socket())))?;
            }
        }
        Ok(())
    }
}

/// How much was written, if anything was tried: nothing where there was no room.
fn unless_full(written: Option<io::Result<usize>>) -> io::Result<usize> {
    match written {
        None => Ok(0),
        Some(Err(error)) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        Some(result) => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A relay in front of a peer that waits a little, so that its side fills, and then sends all bytes back.
    fn relay_to_an_echo(splice: bool, threads: usize) -> SocketAddrV4 {
        let (peer, listener) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string().parse().unwrap();
        let (broker, relay) = (address(&peer), address(&listener));
        thread::spawn(move || {
            while let Ok((mut stream, _)) = peer.accept() {
                thread::spawn(move || {
                    let mut all = Vec::new();
                    thread::sleep(Duration::from_millis(50));
                    stream.read_to_end(&mut all).unwrap();
                    stream.write_all(&all).unwrap();
                });
            }
        });
        thread::spawn(move || serve(&listener, broker, threads, splice, None));
        relay
    }

    #[test]
    fn all_bytes_and_both_ends_pass() {
        let sent: Vec<u8> = (0..9_000_000u32).map(|number| (number / 7) as u8).collect();
        for (splice, threads) in [(false, 1), (true, 1), (false, 2), (true, 2)] {
            let relay = relay_to_an_echo(splice, threads);
            let mut clients: Vec<_> = (0..3).map(|_| TcpStream::connect(relay).unwrap()).collect();
            for client in &mut clients {
                client.write_all(&sent).unwrap();
                client.shutdown(Shutdown::Write).unwrap();
            }
            for client in &mut clients {
                let mut got = Vec::new();
                client.read_to_end(&mut got).unwrap();
                assert!(got == sent, "splice {splice}, threads {threads}: got {} bytes", got.len());
            }
        }
    }

    #[test]
    fn a_peer_that_left_is_told_to_the_other_side() {
        for splice in [false, true] {
            let (broker, listener) =
                (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
            let relay = listener.local_addr().unwrap();
            let address = broker.local_addr().unwrap().to_string().parse().unwrap();
            thread::spawn(move || serve(&listener, address, 1, splice, None));
            let mut client = TcpStream::connect(relay).unwrap();
            drop(broker.accept().unwrap());
            client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
        }
    }
}
