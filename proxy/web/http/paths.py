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


def origin_form(target: str, host: str) -> str | None:
    """Return path and query of a target in absolute form, `http://host/path`; None for any other target.

    `host` is the request's header: with another host in the target two servers could read the request differently. Such
    a target is None. Source: RFC 9112, 3.2.2.
    """
    scheme, _, rest = target.partition("://")
    if scheme.lower() not in ("http", "https"):
        return None
    ends = [at for at in map(rest.find, "/?#") if at >= 0]
    end = min(ends, default=len(rest))
    if not host or rest[:end].lower() != host.lower():
        return None
    return rest[end:] if rest[end:].startswith("/") else f"/{rest[end:]}"
