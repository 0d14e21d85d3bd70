//! Command line: `--name value` pairs and bare `--switches`; every name must be used by somebody.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

pub struct Args {
    values: HashMap<String, String>,
}

impl Args {
    pub fn parse(words: impl Iterator<Item = String>, known: &[&str]) -> Result<Args, String> {
        let mut values = HashMap::new();
        let mut words = words.peekable();
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").ok_or(format!("got {word:?}, expected --name value"))?;
            if !known.contains(&name) {
                return Err(format!("got --{name}, expected one of: --{}", known.join(" --")));
            }
            let value = words.next_if(|next| !next.starts_with("--")).unwrap_or_default();
            values.insert(name.to_owned(), value);
        }
        Ok(Args { values })
    }

    pub fn switch(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    pub fn text(&self, name: &str, default: &str) -> String {
        self.values.get(name).map_or(default, String::as_str).to_owned()
    }

    pub fn optional(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    pub fn number(&self, name: &str, default: u64) -> Result<u64, String> {
        match self.values.get(name) {
            None => Ok(default),
            Some(text) => {
                text.parse().map_err(|_| format!("--{name}: got {text:?}, expected a whole number"))
            }
        }
    }

    pub fn seconds(&self, name: &str, default: f64) -> Result<Duration, String> {
        let text = self.text(name, "");
        let seconds = if text.is_empty() { Ok(default) } else { text.parse::<f64>() };
        let bounded = seconds.ok().filter(|seconds| (0.0..=600.0).contains(seconds));
        bounded
            .map(Duration::from_secs_f64)
            .ok_or(format!("--{name}: got {text:?}, expected 0 to 600 seconds"))
    }

    /// The server to load.
    pub fn address(&self) -> Result<SocketAddrV4, String> {
        self.loopback("address")?.ok_or("got no --address, expected 127.0.0.1:PORT".to_owned())
    }

    /// An address on the loopback interface, and nowhere else, whatever is asked for.
    pub fn loopback(&self, name: &str) -> Result<Option<SocketAddrV4>, String> {
        let Some(text) = self.optional(name) else { return Ok(None) };
        Self::inside(name, text).map(Some)
    }

    /// An address of this machine's own network to connect from.
    pub fn source(&self, name: &str) -> Result<Option<Ipv4Addr>, String> {
        let Some(text) = self.optional(name) else { return Ok(None) };
        let address: Option<Ipv4Addr> = text.parse().ok();
        let inside = address.filter(Ipv4Addr::is_loopback);
        inside.map(Some).ok_or(format!("--{name}: got {text:?}, expected an address such as 127.0.0.2"))
    }

    fn inside(name: &str, text: &str) -> Result<SocketAddrV4, String> {
        let address: Option<SocketAddrV4> = text.parse().ok();
        let inside = address.filter(|address| address.ip().is_loopback());
        inside.ok_or(format!("--{name}: got {text:?}, expected 127.0.0.1:PORT"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_come_from_loopback_addresses_only() {
        let source = |text: &str| {
            let words = ["--neighbours-from".to_owned(), text.to_owned()];
            Args::parse(words.into_iter(), &["neighbours-from"]).unwrap().source("neighbours-from")
        };
        assert_eq!(source("127.0.0.2"), Ok(Some(Ipv4Addr::new(127, 0, 0, 2))));
        assert!(source("10.0.0.1").is_err() && source("here").is_err());
    }
}
