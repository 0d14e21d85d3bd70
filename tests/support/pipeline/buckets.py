"""The oracle for histograms of waits: what a bucket is, in plain Python."""

from math import floor, log2

from pipeline.core.buckets import NO_WAIT, PER_OCTAVE, TINY


def bucket_of(us: int) -> int:
    """Give the bucket of a wait in microseconds; what is not positive is no wait."""
    return floor(PER_OCTAVE * log2(us) + TINY) if us > 0 else NO_WAIT


def middle_us(bucket: int) -> float:
    """Give the wait that stands for a bucket: the geometric middle, at most 4.5 % off any in it."""
    return 0.0 if bucket == NO_WAIT else float(2 ** ((bucket + 0.5) / PER_OCTAVE))
