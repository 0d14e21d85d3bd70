"""Bounds of what overload control holds, which the memory budget counts; nothing else is imported for them."""

from typing import Final

# Topics that the adaptive throttle knows, with names of at most 512 bytes: measured at 1.1 KB each.
MOST_TOPICS: Final = 65_536
TOPIC_BYTES: Final = 1280
# A paused connection: its number, two table entries, its record.
PAUSED_BYTES: Final = 512
# A broker's metrics have some 600 bytes for each namespace bundle; parsed, they take up to ten times as much.
LARGEST_METRICS_BYTES: Final = 4 * 1024 * 1024
PARSED_METRICS_BYTES: Final = 10 * LARGEST_METRICS_BYTES
