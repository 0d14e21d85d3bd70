"""Where events come from: files of the proxy, or a Pulsar topic."""
