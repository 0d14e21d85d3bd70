"""Patterns of paths, such as `/v1/connections/{id}`: what the web ports and the admin API have in their tables.

Rule: a pattern has no wildcard for more than one segment, so that a table can be read without trying it.
"""


def values_in(pattern: str, segments: list[str]) -> dict[str, str] | None:
    """Give the values that a path, as its segments, has for the `{names}` of a pattern; None if it is another path."""
    expected = [part for part in pattern.split("/") if part]
    if len(expected) != len(segments):
        return None
    values = {}
    for part, got in zip(expected, segments, strict=True):
        if part.startswith("{"):
            values[part.strip("{}")] = got
        elif part != got:
            return None
    return values
