"""The proxy: sockets, tasks, configuration, telemetry. `app` puts it together, `cli` starts it."""
