"""The Pulsar binary protocol as a proxy needs it: bytes in, values out, with no I/O, event loop, clock or logging.

May import the standard library and the protobuf runtime, and nothing else of this project. Start with `frames` (the
layout of a frame) and `framing` (a byte stream cut into frames), then `commands` (decode what the proxy reads, build
what it sends) and `states` (which command is legal when). `scanner`, `producer_scanner` and `command_scanner` look at
relayed streams without decoding them. Import from the modules; the package itself holds no names.
"""
