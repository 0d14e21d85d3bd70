"""What generators of files share: the root of the checkout, and pages of which a part is generated."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["ROOT", "placed"]

ROOT: Final = Path(__file__).resolve().parents[1]


def placed(page: Path, parts: Mapping[tuple[str, str], str]) -> str:
    """Return the text of a page with each part between its two marks; raises ValueError if a mark is missing."""
    text = page.read_text(encoding="utf-8")
    for (begin, end), part in parts.items():
        before, found, rest = text.partition(begin)
        _, ended, after = rest.partition(end)
        if not found or not ended:
            raise ValueError(f"{page.relative_to(ROOT)}: got no generated part, expected {begin!r} and {end!r}")
        text = f"{before}{begin}{part}{end}{after}"
    return text
