"""An embedded broker and a storm of clients: what `pulsar-proxy demo` shows, and what the fault tests talk to.

    names      topic names: listed one by one, or generated and never all in memory
    topics     which namespaces and topics a broker has, and the fields of a topic-list answer
    script     what the broker shall do wrong
    record     what the broker has seen
    answers    a request in, an answer's bytes out
    session    one connection of the broker
    broker     the broker; also `python -m proxy.cli.demo.broker`
    children   broker and proxy as child processes
    storm      many clients through real sockets
    table      the promise, and the table that says whether it held
    watch      the proxy weighed while a storm goes on
    arguments  the options of the command
    run        the command

Rule: nothing of the proxy imports this package but the command line: `arguments` always, the rest for a demo.
"""
