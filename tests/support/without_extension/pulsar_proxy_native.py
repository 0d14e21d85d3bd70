"""Stand in the way of the native extension: a process with this folder on its path is told that there is none."""

raise ModuleNotFoundError("No module named 'pulsar_proxy_native'", name="pulsar_proxy_native")
