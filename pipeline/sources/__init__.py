"""Where events come from: files of the proxy (`files`; `salvage`: files that Spark refuses), or a topic (`pulsar/`)."""
