"""What tests share: fakes, clocks, clients. Nothing here is shipped.

auth       credentials, issuers, certificates
brokers    brokers whose answers a test holds; the embedded one is in `brokers/embedded/`
clients    Pulsar clients: asynchronous, blocking, of lists
proxies    whole proxies, and whole paths through one
sockets    transports, endpoints, frames, disks
web        web ports, fake web brokers, pages
loops      event loops and virtual time
faults     what a network or a peer does wrong
pipeline   events, traces, tables
patience, native, tools, memory_group   time-outs, what the machine has
stages   what the stages of a run took; `walkthrough`, `promql`: commands and queries of the docs
"""
