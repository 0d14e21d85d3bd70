"""The event log of the proxy: records of topic lists, their identities, and the sinks they are written to."""
