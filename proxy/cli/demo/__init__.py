"""An embedded broker and a storm of clients, for `pulsar-proxy demo` and for the tests.

    names      topic names: listed one by one, or generated and never all in memory
    topics     the namespaces and topics of a broker, and the fields of a topic-list answer
    watchers   the topic-list watchers of a connection
    script     the faults that the broker simulates
    record     the commands that the broker has received
    answers    the answer to each request, as bytes
    session    a connection of the broker
    broker     the broker; also `python -m proxy.cli.demo.broker`
    children   broker and proxy as child processes
    storm      many clients through real sockets
    table      the promise of the demo, and its table of results
    watch      the proxy's memory during a storm
    spill      the directory for lists on disk, and how many went there
    overload   the scenario `--overload`; `producers`: its producers, and a broker that stores messages
    run        the command; a new scenario is a file like `overload`, an option in `_add_demo` of
               `proxy/cli/main.py` and a branch in `run`

Start with `run.py` for the demo, with `broker.py` for tests.
The broker is a test double first: the integration tests run against it. Rule: within the proxy only the command line
imports this package, and only to run a demo.
"""
