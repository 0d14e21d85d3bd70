"""Connections to brokers that carry requests: targets, names, discovery, the pool, handshakes, admission of answers.

May import: `core`, `config`, `auth`, `telemetry`, `net`. Start with `pool.py`, then `connection.py`;
`members.py` has the states of brokers and the pauses between probes, `discovery.py` probes and chooses;
`admitted_request.py` holds the rule that an answer is admitted before its body is read.
"""
