"""Units and bounds that several keys share."""

from typing import Final

BYTES: Final = "bytes"
MILLIS: Final = "milliseconds"
SECONDS: Final = "seconds"
HOUR_MILLIS: Final = 3_600_000
DAY_SECONDS: Final = 86_400
LARGEST: Final = 2**31 - 1
# Pulsar adds this to maxMessageSize for headers.
FRAME_OVERHEAD: Final = 10_240
