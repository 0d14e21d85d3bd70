//! Floods of the server's web port: requests, uploads, and chunks of uploads.

use std::io::{self, ErrorKind, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Instant;

use crate::hostile::{self, Stage, Watch, CHUNK_BYTES, COME_BACK, TICK};
use crate::link::Link;

/// Of all attackers together: what a chunk costs the server is looked at, not what a connection does.
const CHUNKED_UPLOADS: u64 = 50;
const CHUNKED: &[u8] = b"POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
const TINY_CHUNK: &[u8] = b"1\r\nX\r\n";

fn web(stage: &Stage) -> io::Result<TcpStream> {
    TcpStream::connect(stage.web.ok_or(io::Error::other("got no --web, expected 127.0.0.1:PORT"))?)
}

/// Five connections that ask for a page again and again without waiting for the answer.
pub fn pages(stage: &Stage, watch: &Watch, path: &str) -> io::Result<u64> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let chunk = request.repeat(CHUNK_BYTES / request.len());
    let mut links = Vec::new();
    for _ in 0..5 {
        let mut link = Link::from(web(stage)?);
        link.set_nonblocking(true)?;
        links.push(link);
    }
    hostile::flood(&mut links, chunk.as_bytes(), stage.rate, watch)
}

/// Uploads whose client leaves at once.
pub fn aborted_uploads(stage: &Stage, watch: &Watch) -> io::Result<u64> {
    let head = b"POST /admin/v2/persistent/a/b/c HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n100000\r\n";
    let upload = [&head[..], &[b'x'; 100_000]].concat();
    let (mut sent, mut turn) = (0, 0);
    while !watch.over() {
        if watch.pace(stage.rate, sent) {
            let mut stream = web(stage)?;
            stream.set_write_timeout(Some(1000 * TICK))?;
            stream.write_all(&upload)?;
            thread::sleep(turn % 5 * TICK);
            (sent, turn) = (sent + upload.len() as u64, turn + 1);
        }
    }
    Ok(sent)
}

/// Eight uploads of 0.85 MB, then four bytes each half second.
pub fn dripping_uploads(stage: &Stage, watch: &Watch) -> io::Result<u64> {
    let head =
        b"POST /admin/v2/persistent/a/b/c HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n";
    let upload = [&head[..], &[b'x'; 850_000]].concat();
    let mut streams = Vec::new();
    for _ in 0..8 {
        let mut stream = web(stage)?;
        stream.set_write_timeout(Some(2000 * TICK))?;
        // A server that stops reading is what an attacker wants.
        let _ = stream.write_all(&upload);
        streams.push(stream);
    }
    let mut sent = (streams.len() * upload.len()) as u64;
    while !watch.over() {
        for stream in &mut streams {
            stream.write_all(b"xxxx")?;
            sent += 4;
        }
        thread::sleep(500 * TICK);
    }
    Ok(sent)
}

/// An upload that never ends, in chunks of one byte.
struct ChunkedUpload {
    link: Link,
    /// Of the head and the chunks behind it, where the next byte is; chunks begin again at the end.
    position: usize,
}

impl ChunkedUpload {
    fn begin(stage: &Stage) -> io::Result<ChunkedUpload> {
        let mut link = Link::from(web(stage)?);
        link.set_nonblocking(true)?;
        Ok(ChunkedUpload { link, position: 0 })
    }

    /// Send what there is room for; 0 if there is none.
    fn go_on(&mut self, upload: &[u8]) -> io::Result<usize> {
        let count = match self.link.write(&upload[self.position..]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            written => written?,
        };
        self.position += count;
        if self.position == upload.len() {
            self.position = CHUNKED.len();
        }
        Ok(count)
    }
}

fn chunked_upload() -> Vec<u8> {
    [CHUNKED, &TINY_CHUNK.repeat(CHUNK_BYTES / TINY_CHUNK.len())].concat()
}

/// A part of 50 uploads in chunks of one byte, within the rate; one that is ended comes back.
pub fn tiny_chunks(stage: &Stage, watch: &Watch) -> io::Result<u64> {
    let (upload, mut answers) = (chunked_upload(), vec![0u8; 65536]);
    let own = CHUNKED_UPLOADS.div_ceil(stage.attackers);
    let (mut held, mut sent): (Vec<Option<ChunkedUpload>>, u64) = ((0..own).map(|_| None).collect(), 0);
    let mut back = Instant::now();
    while !watch.over() {
        let (mut idle, returning) = (true, Instant::now() >= back);
        back = if returning { Instant::now() + COME_BACK } else { back };
        for place in &mut held {
            if !watch.pace(stage.rate, sent) {
                break;
            }
            if place.is_none() && returning {
                // A server that accepts nobody else is what an attacker wants.
                *place = ChunkedUpload::begin(stage).ok();
            }
            let Some(one) = place else { continue };
            match one.go_on(&upload) {
                Ok(count) if hostile::discard(&mut one.link, &mut answers) => {
                    (idle, sent) = (idle && count == 0, sent + count as u64);
                }
                _ => *place = None,
            }
        }
        if idle {
            thread::sleep(TICK);
        }
    }
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{SocketAddrV4, TcpListener};
    use std::str;

    use crate::session::Target;

    #[test]
    fn an_upload_in_tiny_chunks_goes_on_behind_its_head() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address: SocketAddrV4 = listener.local_addr().unwrap().to_string().parse().unwrap();
        let target = Target::plain(address);
        let stage = Stage { target, broker: None, web: Some(address), rate: 1, attackers: 10 };
        let mut upload = ChunkedUpload::begin(&stage).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let text = [CHUNKED, TINY_CHUNK, TINY_CHUNK].concat();
        let sent: usize = (0..2).map(|_| upload.go_on(&text).unwrap()).sum();
        let mut got = vec![0u8; sent];
        peer.read_exact(&mut got).unwrap();
        assert_eq!(str::from_utf8(&got), str::from_utf8(&[CHUNKED, &TINY_CHUNK.repeat(4)].concat()));
    }
}
