import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.properties import ConfEntry, ConfSyntaxFault, parse_conf


def pairs(text: str) -> list[tuple[str, str]]:
    return [(entry.key, entry.value) for entry in parse_conf(text.encode("latin-1")).entries]


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("a = b", "a", "b"),
        ("  a : b ", "a", "b "),
        ("a\\ b=c", "a b", "c"),
        ("a\\=b=c", "a=b", "c"),
        ("a=1,\\\n   2,\\\n\t3", "a", "1,2,3"),
        ("a=c:\\\\temp", "a", "c:\\temp"),
        ("a=\\u00e9\\ud83d\\ude00", "a", "é😀"),
        ("a=\xe9", "a", "é"),
    ],
)
def test_a_line_is_read_as_java_reads_it(text: str, key: str, value: str) -> None:
    assert pairs(text) == [(key, value)]


def test_an_entry_knows_the_line_it_starts_on() -> None:
    parsed = parse_conf(b"# first\r\na=1\\\r\n  2\r\n\r\nb=3\r\n")
    assert parsed.entries == (ConfEntry("a", "12", 2), ConfEntry("b", "3", 5))


def test_a_bad_escape_is_a_fault_and_the_next_line_is_read() -> None:
    parsed = parse_conf(b"a=1\nb=\\u12\nc=\\uzzzz and more\nd=4")
    assert [entry.key for entry in parsed.entries] == ["a", "d"]
    assert [(fault.line, fault.got) for fault in parsed.faults] == [(2, "\\u12"), (3, "\\uzzzz")]
    assert isinstance(parsed.faults[0], ConfSyntaxFault)


@given(st.text(alphabet="ab=: \t\f\r\n\\#!u0é1", max_size=60))
def test_any_text_gives_what_the_reference_parser_gives(text: str) -> None:
    try:
        expected = [
            (element.key, element.value)
            for element in javaproperties.parse(text.encode("latin-1"))
            if isinstance(element, javaproperties.KeyValue)
        ]
    except javaproperties.InvalidUEscapeError:
        assert parse_conf(text.encode("latin-1")).faults
    else:
        assert pairs(text) == expected
