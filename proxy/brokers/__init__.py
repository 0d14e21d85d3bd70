"""Connections to brokers that carry requests: targets, names, discovery, the pool, handshakes, admission of answers.

May import: `core`, `config`, `auth`, `telemetry`, `net`. Start with `pool.py` (how many connections), then
`connection.py` (one; `endpoint.py`: PINGs and challenges, `clocks.py`: times, `request.py`: small answers).
`admitted_request.py` holds the rule that an answer is admitted before its body is read, or passed over if it is too
large.
The choice of a broker: `members.py` has the states of brokers and the pauses between probes, `discovery.py` probes and
chooses. Names: `resolver.py`, and `name_queries.py` for who waits. Targets: `target.py` (allowed addresses), `gate.py`
(who gets secrets); known brokers: `known_brokers.py`, `broker_list.py`, `list_question.py`. `admin_port.py` asks web
services of brokers.
`dialer.py` opens the sockets to brokers, and has the TCP options of both sides (`SocketOptions`);
`side.py` makes all of this: one dialer for relays and one for requests, with its PROXY header (a relay's is made in
`proxy/relay/direct_mode.py`). `sockets.py`: what all connections share. CONNECT: `connect_frames.py`; for a relay and
as a probe `handshake.py`.
"""
