"""Declarations of all keys of proxy.conf, with a file for each theme.

Rule: names, defaults and units are the Java proxy's wherever the meaning is the same. No declaration refers to another
key; checks across keys are in `proxy.config.rules`. Start with `key.py` (what a declaration has), then a theme:

    server          ports, addresses, PROXY headers, names, `maxConnectionAgeSeconds`
    clients         limits of clients and requests, frame sizes, handshake time-out, keep-alive
    brokers         brokers, probes, names, targets, time-outs and connections to brokers
    topic_lists     memory, time-outs, queues, fairness, slow readers, disk, watchers
    sockets         kernel buffers, the relay: engine, threads, pool; TCP keep-alive
    authentication  providers, tokens, OpenID, the proxy's own credentials
    tls, http, events, overload   what their names say
    operation       drain, logs, control socket, admin API
    units, log_components         units and names that keys share
    networks                      hosts and networks as operators write them
"""
