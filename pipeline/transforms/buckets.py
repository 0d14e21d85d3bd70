"""Log buckets of microseconds: which bucket a wait is in. No pyspark here.

Rule: eight buckets to the power of two, `floor(8 log2 us)`, and one of its own, -1, for no wait at all. So whatever is
said of a bucket is within 9 % of every wait in it (4.5 % by its middle), and histograms merge by adding counts, in any
order. The definition as Spark columns is in histograms.py.
"""

from typing import Final

__all__ = ["NO_WAIT", "TINY"]

NO_WAIT: Final = -1
# Libraries differ in the last bit of log2, and 8 log2 of a power of two must not fall below its whole number. The
# other edges are irrational: up to half a day no wait is within this of one.
TINY: Final = 1e-11
