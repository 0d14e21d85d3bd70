"""Settings out of the process's environment, as Pulsar's image puts them into proxy.conf before it starts the proxy.

Rule: the same variables mean the same thing (the image's apply-config-from-env.py), but nothing is written: a file
system may be read-only. A variable named like a key of proxy.conf, one that stands there behind a # too, sets it;
`PULSAR_PREFIX_<key>` sets it as well, or adds it, and wins over the bare name. A value `${OTHER}` is that of the
variable OTHER, nothing if there is none. Blanks around a bare variable's value are cut off first. A value is then read
as the line of a properties file that the image makes of it: a backslash is an escape there.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from proxy.config.properties import unescape

PREFIX: Final = "PULSAR_PREFIX_"


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable that sets a key: its name, the key, its value; `fault` says what is wrong with that."""

    name: str
    key: str
    value: str
    fault: str = ""


def settings_of(environ: Mapping[str, str], stands_in_file: Callable[[str], bool]) -> Iterator[Variable]:
    """Yield what the environment sets, a winner behind what it overrides.

    `stands_in_file` tells of a name whether proxy.conf has such a key, set or commented.
    """
    for name in sorted(environ):
        if stands_in_file(name):
            yield _variable(name, name, environ[name].strip(), environ)
    for name in sorted(environ):
        if name.startswith(PREFIX):
            yield _variable(name, name.removeprefix(PREFIX), environ[name], environ)


def _variable(name: str, key: str, value: str, environ: Mapping[str, str]) -> Variable:
    if value.startswith("${") and value.endswith("}"):
        value = environ.get(value[2:-1], "")
    try:
        return Variable(name, key, unescape(value))
    except ValueError:
        return Variable(name, key, value, fault="\\u and four hexadecimal digits")
