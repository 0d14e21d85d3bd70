"""Settings in the environment of the process, with the rules by which Pulsar's image writes them into proxy.conf.

Rule: variables mean the same as in the image (its apply-config-from-env.py), but no file is written, since the file
system may be read-only. A variable named like a key of proxy.conf, also like a commented key, sets this key.
`PULSAR_PREFIX_<key>` sets or adds a key and takes precedence over the bare name. The value `${OTHER}` is the value of
the variable OTHER, or empty without such a variable. Blanks around the value of a bare variable are stripped first. The
value is then parsed like a line of a properties file, which the image makes of it: a backslash is an escape.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from proxy.config.properties import unescape

PREFIX: Final = "PULSAR_PREFIX_"


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable that sets a key; `fault` describes what is wrong with the value."""

    name: str
    key: str
    value: str
    fault: str = ""


def settings_of(environ: Mapping[str, str], stands_in_file: Callable[[str], bool]) -> Iterator[Variable]:
    """Yield the settings in the environment; a setting that overrides another comes later.

    `stands_in_file` returns whether proxy.conf has a key of this name, set or commented.
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
