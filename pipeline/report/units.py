"""Numbers and foreign texts as people read them. No pyspark here."""

import math
import unicodedata
from typing import Final

_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP: Final = 1024
LONGEST_TEXT: Final = 120
# Control, format (bidirectional overrides) and private characters could make one name look like another.
_UNSEEN: Final = ("C", "Zl", "Zp")
NOTHING: Final = "-"


def shown(text: object, longest: int = LONGEST_TEXT) -> str:
    """Return a foreign text as it can be shown: nothing invisible, not endless."""
    if text is None or (isinstance(text, float) and math.isnan(text)):
        return "(unknown)"
    visible = "".join(
        f"\\u{ord(letter):04x}" if unicodedata.category(letter).startswith(_UNSEEN) else letter
        for letter in str(text)[: longest + 1]
    )
    if visible == "":
        return "(none)"
    return visible if len(visible) <= longest else visible[: longest - 1] + "…"


def words_of(name: object) -> str:
    """Return a name of ours, like that of a reason, as words."""
    return shown(name).replace("_", " ")


def size(bytes_: float | None) -> str:
    """Write a number of bytes, as `12.5 MiB`."""
    if bytes_ is None or math.isnan(bytes_):
        return NOTHING
    value, unit = float(bytes_), 0
    while abs(value) >= _STEP and unit < len(_SIZES) - 1:
        value, unit = value / _STEP, unit + 1
    return f"{_short(value)} {_SIZES[unit]}"


def limit(bytes_: float, without: str = "no limit") -> str:
    """Write a limit; 0 is none."""
    return size(bytes_) if bytes_ else without


def spread_of(byte_seconds: float | None) -> str:
    """Write byte-seconds, as `12.5 MiB s`."""
    return NOTHING if byte_seconds is None or math.isnan(byte_seconds) else f"{size(byte_seconds)} s"


def duration(micros: float | None) -> str:
    """Write a time given in microseconds, as `250 ms` or `1.5 s`."""
    if micros is None or math.isnan(micros):
        return NOTHING
    for unit, length in (("d", 86_400e6), ("h", 3600e6), ("min", 60e6), ("s", 1e6), ("ms", 1e3)):
        if micros >= length * (2 if unit in {"d", "h", "min"} else 1):
            return f"{_short(micros / length)} {unit}"
    return f"{micros:.0f} µs"


def about(micros: float | None) -> str:
    """Write a time in microseconds that is the middle of its bucket, as `about 250 ms`; none at all is exact."""
    return f"about {duration(micros)}" if micros and not math.isnan(micros) else duration(micros)


def count(number: float | None) -> str:
    """Write a whole number, as `12,345`."""
    return NOTHING if number is None or math.isnan(number) else f"{number:,.0f}"


def share(part: float | None) -> str:
    """Write a share of one as percent; a little is never written as nothing, nor nearly all as all."""
    if part is None or math.isnan(part):
        return NOTHING
    percent = 100 * part
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{percent:.1f} %" if percent % 1 else f"{percent:.0f} %"


def plural(number: int, one: str, many: str = "") -> str:
    """Write a number with its word."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.3g}"
