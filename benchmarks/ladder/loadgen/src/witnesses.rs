//! Who looks on while a storm goes by: what the broker was asked, and what small clients wait.

use crate::args::Args;
use crate::asker::Asker;
use crate::ping::Pinger;
use crate::session::Target;
use crate::stats::Report;

/// A namespace name as long as those of the storms: the fake broker's answers are computed by length.
const REHEARSED: &str = "bench/ns-00000";

/// Who looks on: the broker that counts, and small clients of the server, of the loaded broker behind it, and of a
/// broker that nobody else uses (what the machine alone adds).
pub struct Witnesses {
    broker: Option<(Asker, (u64, u64, u64))>,
    pingers: Vec<(&'static str, Pinger)>,
}

impl Witnesses {
    pub fn call(args: &Args, target: &Target) -> Result<Witnesses, String> {
        let mut witnesses = Witnesses { broker: None, pingers: Vec::new() };
        let address = args.loopback("broker")?;
        if let Some(address) = address {
            let mut asker = Asker::open(address)?;
            asker.list(REHEARSED, 0).map_err(|error| format!("rehearsal: {error}"))?;
            let asked = asker.counters().map_err(|error| error.to_string())?;
            witnesses.broker = Some((asker, asked));
        }
        if args.switch("pings") {
            let (behind, idle) = (address.map(Target::plain), args.loopback("control")?.map(Target::plain));
            for (of, watched) in [("ping", Some(target.clone())), ("broker", behind), ("machine", idle)] {
                if let Some(watched) = watched {
                    witnesses.pingers.push((of, Pinger::start(&watched)?));
                }
            }
        }
        Ok(witnesses)
    }

    pub fn report(self, mut report: Report) -> Result<Report, String> {
        for (of, pinger) in self.pingers {
            report = pinger.stop()?.report(of, report);
        }
        if let Some((mut asker, before)) = self.broker {
            let after = asker.counters().map_err(|error| error.to_string())?;
            report = report.count("questions", after.0 - before.0).count("connects", after.2 - before.2);
        }
        Ok(report)
    }
}
