"""Own what every virtual machine of the tests is told: all live for some minutes."""

from typing import Final

# HotSpot's second compiler would work for code that is over before it is compiled: a broker starts for half the
# processor time without that compiler. Without it HotSpot keeps compiled code in 48 MiB, too, and a Spark session fills
# those: a sixth of its processor time went into sweeping them, and into compiling again what was swept.
# To verify the classes of known jars takes a seventh of the processor time of a Spark session that starts.
QUICK: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=240m",
    "-XX:+UseSerialGC",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
