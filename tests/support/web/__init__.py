"""HTTP: the ports of a proxy, services behind it, and pages as a reader sees them."""
