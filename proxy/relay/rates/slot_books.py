"""The books of topics that producers send to, by slot: counters, and the limits that slow producers down.

A slot is a number, so that counting a message costs no look-up of a name. All connections of a topic share a pair of
buckets of tokens, in the books of the extension (`native/src/relay/slots.rs`).
"""

from typing import Final

# The slot of everything that has none of its own.
OTHER: Final = 0
# A bucket holds the tokens of this long; at least those of its floor.
CAPACITY_SECONDS: Final = 0.25
BYTES_FLOOR: Final = 65_536.0
MESSAGES_FLOOR: Final = 64.0
