"""Print the tables of docs/scaling.md, or one storm."""

import argparse

from benchmarks.scaling import costs, tables
from benchmarks.scaling.model import Fleet, Storm


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--clients", type=int, help="play one storm of so many clients instead")
    parser.add_argument("--proxies", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--brokers", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--names", type=int, default=10_000, help="of 100 bytes, in a list (default: %(default)s)")
    parser.add_argument("--lists", type=int, default=1, help="different lists; 0: each client its own (default: 1)")
    parser.add_argument("--window", type=float, default=1.0, help="seconds in which all connect (default: %(default)s)")
    parser.add_argument("--tls", action="store_true", help="clients speak TLS")
    options = parser.parse_args()
    if options.clients is None:
        for title, lines in (("costs", tables.paid()), ("storm", tables.compared()), ("advice", tables.advice())):
            print(f"{title}\n")
            for line in lines:
                print(line)
            print()
        return
    storm = Storm(options.clients, options.names, namespaces=options.lists, window=options.window)
    fleet = Fleet(options.proxies, brokers=options.brokers)
    outcome = tables.play(storm, fleet, costs.sheet(tls=options.tls).costs)
    print(f"connected after {outcome.connected_seconds:.1f} s, served after {outcome.served_seconds:.1f} s")
    print(f"waits: median {outcome.wait_p50:.1f} s, p99 {outcome.wait_p99:.1f} s, later than 25 s {outcome.late:.0%}")
    print(f"questions: {outcome.questions:,}, {outcome.broker_bytes / 1e6:,.0f} MB from brokers")
    print(f"the fullest proxy has {outcome.fullest:,} clients; what limits: {outcome.bottleneck}")


if __name__ == "__main__":
    main()
