"""A broker and a storm of clients, for `pulsar-proxy demo`.

    names      the topics of the broker, which are never all in memory
    broker     the broker; also `python -m proxy.cli.demo.broker`
    children   broker and proxy as child processes
    storm      many clients through real sockets
    table      the promise of the demo, and its table of results
    watch      the proxy's memory during a storm
    spill      the directory for lists on disk, and how many went there
    overload   the scenario `--overload`; `producers`: its producers, and a broker that stores messages
    run        the command: start here

The broker that the tests ask is another one, `tests/support/brokers/embedded/`. Rule: within the proxy only the command
line imports this package, and only to run a demo.
"""
