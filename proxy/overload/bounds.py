"""Bounds of what overload control holds, which the memory budget counts; nothing else is imported for them."""

from typing import Final

# Topics that the adaptive throttle knows, with names of at most 512 bytes: measured at 1.1 KB each.
MOST_TOPICS: Final = 65_536
TOPIC_BYTES: Final = 1280
# A paused connection: its number, two table entries, its record.
PAUSED_BYTES: Final = 512
# The receive buffer of clients that come while a throttle acts, so that a producer that is paused does not leave its
# whole window in the proxy: enough for 0.8 Gbit/s at a round trip of 10 ms, and the kernel doubles it.
RECEIVED_BYTES: Final = 1024 * 1024
# A broker's metrics have some 600 bytes for each namespace bundle, so this is 7,000 bundles. An answer is there twice
# while it ends (8 MiB); statistics of a topic, asked for meanwhile, took 12 MiB.
LARGEST_METRICS_BYTES: Final = 4 * 1024 * 1024
ANSWER_BYTES: Final = 5 * LARGEST_METRICS_BYTES
# Statistics of a topic, and load reports, are parsed at once: some 6 ms. So many values have some 900 KB.
LARGEST_STATS_BYTES: Final = 1024 * 1024
MOST_STATS_VALUES: Final = 32_768
# Topics whose backlog is asked for.
MOST_BACKLOGS: Final = 1000
