//! Load generator, fake broker and bare relay of the ladder. `loadgen broker …` and `loadgen bare …` serve, `loadgen
//! SCENARIO …` loads a server on the loopback address, bounded in count and time, and prints one JSON object.

mod answers;
mod args;
mod asker;
mod bare;
mod broker;
mod connects;
mod credentials;
mod doors;
mod exposition;
mod hostile;
mod late;
mod link;
mod lists;
mod memory;
mod memory_floods;
mod ping;
mod processor;
mod relay;
mod session;
mod stats;
mod stopped;
mod sys;
mod tls;
mod topics;
mod web_floods;
mod wire;
mod witnesses;

use std::process::ExitCode;

use args::Args;
use credentials::Trust;
use session::{Target, Tokens};

const SCENARIOS: [&str; 8] =
    ["lists", "late-readers", "mixed-storm", "relay", "idle", "stopped-consumers", "connects", "hostile"];
const OPTIONS: [&str; 42] = [
    "address",
    "via",
    "connections",
    "depth",
    "seconds",
    "warmup",
    "topics",
    "topic-bytes",
    "one-namespace",
    "late",
    "limit",
    "pid",
    "receive-buffer",
    "slow",
    "again",
    "frame-bytes",
    "window",
    "receipts",
    "data",
    "port",
    "first",
    "threads",
    "pings",
    "broker",
    "control",
    "metrics",
    "unhurried",
    "trust",
    "tokens",
    "rehearsals",
    "certificate",
    "key",
    "flood",
    "flood-frames",
    "send-buffer-bytes",
    "attackers",
    "neighbours-from",
    "newcomers",
    "rate",
    "web",
    "watch",
    "splice",
];

fn run() -> Result<(), String> {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let args = Args::parse(words, &OPTIONS)?;
    sys::raise_open_files().and_then(|()| sys::die_with_parent()).map_err(|error| error.to_string())?;
    match command.as_str() {
        "broker" => return broker::run(&args),
        "bare" => return bare::run(&args),
        _ => {}
    }
    let via = args.optional("via").map(str::to_owned);
    let tls = args.optional("trust").map(Trust::from_file).transpose()?;
    let tokens = args.optional("tokens").map(Tokens::from_file).transpose()?;
    let target = Target { via, tls, tokens, ..Target::plain(args.address()?) };
    match command.as_str() {
        "lists" => lists::closed_loop(&args, &target),
        "late-readers" => late::run(&args, &target),
        "mixed-storm" => late::mixed(&args, &target),
        "relay" => relay::run(&args, &target),
        "idle" => memory::idle(&args, &target),
        "stopped-consumers" => stopped::run(&args, &target),
        "connects" => connects::run(&args, &target),
        "hostile" => hostile::run(&args, &target),
        other => Err(format!("got {other:?}, expected broker, bare or one of {}", SCENARIOS.join(", "))),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("loadgen: {message}");
            ExitCode::FAILURE
        }
    }
}
