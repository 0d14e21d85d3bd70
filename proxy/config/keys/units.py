"""Units and bounds that several keys share."""

from typing import Final

BYTES: Final = "bytes"
MIB: Final = "MiB"
MILLIS: Final = "milliseconds"
SECONDS: Final = "seconds"
MINUTE_MILLIS: Final = 60_000
HOUR_MILLIS: Final = 3_600_000
DAY_SECONDS: Final = 86_400
LARGEST: Final = 2**31 - 1
# Pulsar adds this to maxMessageSize for headers.
FRAME_OVERHEAD: Final = 10_240
