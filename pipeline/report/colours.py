"""Colours and the look of all charts, readable on a white and on a dark page alike.

Rule: each colour has a contrast of at least 3 to both (tests). A mark that is neither data nor legend takes the colour
of the page's text, so that a chart needs no second drawing when the scheme changes, nor for paper.
"""

from typing import Any, Final

LIGHT: Final = "#ffffff"
DARK: Final = "#14171c"
BLUE: Final = "#3b7dd8"
ORANGE: Final = "#d9701a"
GREEN: Final = "#2f9456"
RED: Final = "#d94a4f"
PURPLE: Final = "#9a62cf"
TEAL: Final = "#168c98"
PINK: Final = "#cf4f93"
GREY: Final = "#7f8792"
SERIES: Final = (BLUE, ORANGE, GREEN, PURPLE, TEAL, PINK, RED, GREY)
FONT: Final = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
_INK: Final = "currentColor"
_WORDS: Final = {"labelColor": _INK, "titleColor": _INK, "titleFontWeight": "normal"}
_LINES: Final = {"gridColor": "#80808038", "domainColor": "#80808080", "tickColor": "#80808080"}
CONFIG: Final[dict[str, Any]] = {
    "background": "transparent",
    "font": FONT,
    "view": {"stroke": None},
    "axis": _WORDS | _LINES | {"labelFontSize": 11, "titleFontSize": 12},
    "legend": _WORDS | {"orient": "top", "labelLimit": 320},
    "header": _WORDS,
    "title": {"color": _INK, "fontWeight": "normal"},
    "range": {"category": list(SERIES)},
    "text": {"color": _INK},
}
