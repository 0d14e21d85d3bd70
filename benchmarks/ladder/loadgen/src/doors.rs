//! The listening sockets of the fake broker. Knows nothing of what is said behind them.

use std::io;
use std::net::TcpListener;

use crate::credentials::Identity;
use crate::sys;

/// Where connections come in: in plain text, and under TLS if there is something to show.
pub struct Doors {
    pub plain: TcpListener,
    pub tls: Option<(TcpListener, Identity)>,
}

impl Doors {
    pub fn open(port: u16, identity: Option<Identity>) -> io::Result<Doors> {
        let tls = identity.map(|identity| Ok::<_, io::Error>((listen(0)?, identity))).transpose()?;
        Ok(Doors { plain: listen(port)?, tls })
    }

    /// `port N`, or `port N tls M`.
    pub fn announce(&self) -> io::Result<String> {
        let plain = format!("port {}", self.plain.local_addr()?.port());
        match &self.tls {
            None => Ok(plain),
            Some((listener, _)) => Ok(format!("{plain} tls {}", listener.local_addr()?.port())),
        }
    }
}

fn listen(port: u16) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    sys::deepen_backlog(&listener, 4096)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
