"""The Pulsar binary protocol as a proxy needs it: bytes in, values out.

No I/O, no event loop, no clock, no logging, no metrics: plain tests drive all of it. Imports the standard
library and the protobuf runtime only, and nothing else of this project.

    errors         what can be wrong, and the error numbers of the wire
    command_type   the numbers of all commands, readable without decoding one
    frames         the layout of a frame's first bytes
    framing        a byte stream cut into frames, the large ones announced before their body is there
    slabs          a large body in memory, in pieces of 64 KiB
    topic_list     a broker's topic list: checked while it arrives, sent on under other request ids
    commands       decode what the proxy reads, build what it sends
    states         which command is legal when, for both roles
    topics_hash    the hash by which client and broker compare topic lists
    pb             PulsarApi.proto and its generated module

Import from the modules; the package itself holds no names.
"""
