"""Match paths against patterns such as `/v1/connections/{id}`, for the tables of the web ports and the admin API.

Rule: a wildcard matches a single segment, so a reader sees which paths a pattern matches.
"""


def values_in(pattern: str, segments: list[str]) -> dict[str, str] | None:
    """Return the values of a pattern's `{names}` in a path, given as its segments; None if the path does not match."""
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
