"""The options of `pulsar-proxy demo`, apart from its code: building the parser must not load a library."""

import argparse


def add_demo(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pulsar-proxy demo`."""
    parser.description = "run an embedded broker, the proxy and a storm of clients on 127.0.0.1"

    def number(name: str, default: int, text: str) -> None:
        parser.add_argument(name, type=int, default=default, metavar="N", help=f"{text} (default: %(default)s)")

    number("--connections", 300, "number of clients")
    number("--requests", 4, "topic lists that each client requests at once")
    number("--topics", 10_000, "topics in each namespace")
    number("--name-bytes", 100, "bytes of each topic's name")
    number("--namespaces", 0, "number of namespaces; 0 gives each client a namespace of its own")
    number("--heap-mb", 32, "maxTopicListInFlightHeapMemSizeMB of the proxy")
    number("--direct-mb", 32, "maxTopicListInFlightDirectMemSizeMB of the proxy")
    parser.add_argument(
        "--slow-share", type=float, default=0.2, metavar="0..1",
        help="share of slow clients: they start to read late, with a receive buffer of 4 KiB (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--late-seconds", type=float, default=3.0, metavar="S",
        help="seconds until the slow clients start to read (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--event-log",
        metavar="DIR",
        help="directory for the proxy's event log (eventLogDirectory), for the pipeline",
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="override one key of the proxy; repeat the option for more",
    )
    parser.add_argument(
        "--accept-refusals", action="store_true",
        help="do not count refusals as failures: for limits that are too small on purpose",
    )  # fmt: skip
    parser.add_argument(
        "--overload", action="store_true",
        help="a storm of producers instead, which the threshold throttle holds and releases (--connections of them)",
    )  # fmt: skip
    parser.add_argument(
        "--overload-seconds", type=float, default=26.0, metavar="S",
        help="seconds that the producers send (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--broker-only", action="store_true", help="run broker and proxy without a storm, until Ctrl-C")
