"""Own the unit tests of the limiter: virtual time, no ports."""
