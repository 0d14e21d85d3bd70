"""Connections to brokers that carry requests: targets, names, discovery, the pool, handshakes, admission of answers.

May import: `core`, `config`, `auth`, `telemetry`, `net`. Start with `pool.py`, then `connection.py`;
`members.py` has the states of brokers and the pauses between probes, `discovery.py` probes and chooses;
`dialer.py` opens the sockets to brokers, and has the TCP options of both sides (`SocketOptions`);
`proxy/app/broker_side.py` makes one dialer for relays and one for requests, with what only one of them has.
`admitted_request.py` holds the rule that an answer is admitted before its body is read.
"""
