"""An HTML page as a reader of it sees it: headings, tables, texts, and what it would load."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

# Elements that have no end.
VOID = {"meta", "link", "img", "br", "hr", "input"}


@dataclass
class Table:
    caption: str = ""
    headers: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)


class Page(HTMLParser):
    """A parsed page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.headings: list[tuple[str, str]] = []
        self.tables: list[Table] = []
        self.references: list[str] = []
        self.scripts: list[tuple[dict[str, str], str]] = []
        self.styles: list[str] = []
        self.paragraphs: list[str] = []
        self.preformatted: list[str] = []
        self.labels: list[str] = []
        self.ids: list[str] = []
        self.pictures = 0
        self.elements: set[str] = set()
        self.handlers: list[str] = []
        self._open: list[tuple[str, dict[str, str]]] = []
        self._text = ""
        self.feed(text)
        self.close()
        assert self._open == [], f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.elements.add(tag)
        self.references += [given[name] for name in ("src", "href", "xlink:href", "action", "data") if name in given]
        self.handlers += [name for name in given if name.startswith("on")]
        if "id" in given:
            self.ids.append(given["id"])
        if given.get("role") == "img":
            self.labels.append(given.get("aria-label", ""))
        if tag == "svg":
            self.pictures += 1
        if tag == "table":
            self.tables.append(Table())
        if tag == "tr" and "tbody" in [name for name, _ in self._open]:
            self.tables[-1].rows.append([])
        if tag not in VOID:
            self._open.append((tag, given))
            self._text = ""

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        name, given = self._open.pop()
        assert name == tag, f"got </{tag}>, expected </{name}>"
        text, self._text = self._text.strip(), ""
        within = [name for name, _ in self._open]
        if tag in {"h1", "h2", "h3"}:
            self.headings.append((tag, text))
        elif tag == "script":
            self.scripts.append((given, text))
        elif tag == "style":
            self.styles.append(text)
        elif tag == "p":
            self.paragraphs.append(text)
        elif tag == "pre":
            self.preformatted.append(text)
        elif tag == "caption":
            self.tables[-1].caption = text
        elif tag in {"th", "td"} and "thead" in within:
            self.tables[-1].headers.append(text)
        elif tag in {"th", "td"} and "tbody" in within:
            self.tables[-1].rows[-1].append(text)
