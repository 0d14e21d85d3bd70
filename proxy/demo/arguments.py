"""The options of `pulsar-proxy demo`, apart from its code: the parser of the command line loads no library."""

import argparse


def add_demo(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = "run an embedded broker, the proxy and a storm of clients on 127.0.0.1"

    def number(name: str, default: int, text: str) -> None:
        parser.add_argument(name, type=int, default=default, metavar="N", help=f"{text} (default: %(default)s)")

    number("--connections", 300, "clients")
    number("--requests", 4, "topic lists each client asks for at once")
    number("--topics", 10_000, "topics in each namespace")
    number("--name-bytes", 100, "bytes of each topic's name")
    number("--namespaces", 0, "namespaces; 0 gives each client its own")
    number("--heap-mb", 32, "maxTopicListInFlightHeapMemSizeMB of the proxy")
    number("--direct-mb", 32, "maxTopicListInFlightDirectMemSizeMB of the proxy")
    parser.add_argument(
        "--slow-share", type=float, default=0.2, metavar="0..1",
        help="part of the clients that begin to read late, with a receive buffer of 4 KiB (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--late-seconds", type=float, default=3.0, metavar="S", help="how late those begin (default: %(default)s)"
    )
    parser.add_argument(
        "--event-log", metavar="DIR", help="have the proxy log its events there (eventLogDirectory), for the pipeline"
    )
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="override one key of the proxy; may be repeated"
    )
    parser.add_argument(
        "--accept-refusals", action="store_true",
        help="refusals do not break the promise: for limits that are meant to be too small",
    )  # fmt: skip
    parser.add_argument(
        "--broker-only", action="store_true", help="no storm: run broker and proxy for trying by hand, until Ctrl-C"
    )
