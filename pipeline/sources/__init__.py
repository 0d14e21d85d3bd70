"""Where events come from: files of the proxy (`files`), or a topic (`pulsar/`)."""
