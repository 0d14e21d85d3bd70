"""Own what every virtual machine of the tests is told: all live for a minute or two."""

from typing import Final

# HotSpot's second compiler would work for code that is over before it is compiled: a broker starts for half the
# processor time without that compiler.
QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
