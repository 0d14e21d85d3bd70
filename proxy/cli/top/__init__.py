"""`pulsar-proxy top`: a live view of limiters, queues, top namespaces and refusals of a running proxy."""
