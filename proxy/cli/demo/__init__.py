"""A broker and a storm of clients, for `pulsar-proxy demo`.

    run        the command and the storm of lists: start here
    children   broker and proxy as child processes, and the proxy's configuration and metrics
    broker     the broker, and its topics
    storm      many clients through real sockets
    table      the promise of the demo, and its table of results
    overload   the scenario `--overload`: producers, and a broker that stores messages

The broker that the tests ask is another one, `tests/support/brokers/embedded/`. Rule: within the proxy only the command
line imports this package, and only to run a demo.
"""
