//! Samples of a server's `/metrics`, fetched over plain HTTP. Knows no metric's meaning.

use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpStream};

/// Return the sum of the first sample of each name; an error if a name is missing.
pub fn sum(metrics: SocketAddrV4, names: &[&str]) -> Result<u64, String> {
    let text = fetch(metrics).map_err(|error| format!("metrics at {metrics}: {error}"))?;
    let samples: Vec<u64> = names.iter().filter_map(|name| sample(&text, name)).collect();
    if samples.len() < names.len() {
        return Err(format!("metrics at {metrics}: got no {}", names.join(" or no ")));
    }
    Ok(samples.iter().sum())
}

fn fetch(metrics: SocketAddrV4) -> io::Result<String> {
    let mut stream = TcpStream::connect(metrics)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn sample(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.rsplit(' ').next()?.parse::<f64>().ok().map(|value| value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_found_by_its_name() {
        let text = "# TYPE a gauge\na_b{cluster=\"x\"} 12.0\na{cluster=\"x\"} 3.0\n";
        assert_eq!((sample(text, "a_b"), sample(text, "a{"), sample(text, "c")), (Some(12), Some(3), None));
    }
}
