"""The Pulsar binary protocol as a proxy needs it: bytes in, values out, with no I/O, event loop, clock or logging.

May import the standard library and the protobuf runtime, and nothing else of this project. Start with `frames` (the
layout of a frame) and `framing` (a byte stream cut into frames), then `commands` (decode what the proxy reads, build
what it sends) and `states` (which command is legal when). `command_head` reads what the log shows of a relayed frame.
`proxy_header` has the PROXY header (versions 1 and 2), `topic_list` and `slabs` the bodies of lists, `topics_hash`
their hash. `command_type` has the numbers of commands, `field_walker` counts fields before anything is decoded,
`host_port` and `errors` are what their names say. Import from the modules; the package itself holds no names.
"""
