"""The ladder: what each layer of the proxy costs, beside no proxy at all, the Java proxy and HAProxy."""
