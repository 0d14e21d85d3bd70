"""Keys that are no more: a file that sets one to what the proxy does anyway still works, for one version.

Rule: any other value is an error, which names what to do instead, with or without `--strict`.
"""

from typing import Final, NamedTuple


class RetiredKey(NamedTuple):
    """`kept`: the values that say what the proxy does anyway; `instead`: what to do for any other."""

    kept: tuple[str, ...]
    instead: str


RETIRED: Final = {
    "relayEngine": RetiredKey(
        ("", "auto", "native"),
        "no such key: the native extension moves all relays; a proxy that does without it starts with "
        "--without-extension",
    ),
}
