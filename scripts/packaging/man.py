"""Generate the manual pages in mdoc(7), from the parser of the command line and the table of keys.

Rule: this module uses only the standard library, because it runs while a wheel is built.
"""

import argparse
import re
import textwrap
from collections.abc import Iterator
from typing import Any, Final

from proxy.cli.main import whole_parser
from proxy.config.keys.key import Key
from proxy.core.version import VERSION
from scripts.packaging.key_facts import ORIGINS, facts, sections

# The date of the last change to the texts below; mdoc requires a date.
DATE: Final = "November 26, 2026"
HEADER: Final = '.\\" Written by scripts/packaging/man.py when the wheel was built.'
CONF_PAGE: Final = "pulsar-proxy.conf 5"
# The end of a sentence: mdoc wants a line for each. The lower-case word after `i.e.` keeps it from matching.
SENTENCE: Final = re.compile(r"(?<=[\w)`'\"][.?!])\s+(?=[A-Z`0-9])")

ABOUT: Final = (
    "Relays traffic between clients of Apache Pulsar and its brokers, in front of a cluster or beside an application.",
    "The proxy bounds the memory of topic lists (PIP-442).",
)
EXIT: Final = (
    ("0", "Success. For serve: stopped by a signal or by the admin API."),
    ("1", "Failure: a port cannot be bound, no proxy answers, or the proxy is not ready."),
    ("2", "The configuration or the command line is wrong; a line is printed for each fault."),
)
SIGNALS: Final = (
    ("SIGTERM", "Drain and stop as proxyRole demands, within the times of the keys that begin with shutdown."),
    ("SIGINT", "Drain at once. A second SIGTERM or SIGINT stops the proxy at once."),
    ("SIGHUP", "Read the configuration again, all or nothing. The log says what changed and what waits for a restart."),
    ("SIGQUIT", "Write the stacks of all threads to standard error and go on, also if the event loop stands still."),
)
ENVIRONMENT: Final = (
    ("<key>", "A variable with the name of a key sets it, before the file."),
    ("PULSAR_PREFIX_<key>", "The same, with precedence over the bare name."),
    ("XDG_RUNTIME_DIR", "Directory of the control socket, unless controlSocketPath is set."),
    ("NOTIFY_SOCKET, WATCHDOG_USEC", "Set by systemd; the proxy then reports its state to systemd."),
)
FILES: Final = (
    ("/etc/pulsar-proxy/proxy.conf", "The file of the systemd units; pulsar-proxy.conf(5) has its keys."),
    ("$XDG_RUNTIME_DIR/pulsar-proxy-<port>.sock", "The control socket, unless controlSocketPath is set."),
    ("/tmp/pulsar-proxy-<uid>/pulsar-proxy-<port>.sock", "The same, without XDG_RUNTIME_DIR."),
)
EXAMPLES: Final = (
    ("Look for faults, and try each broker:", "pulsar-proxy check-config --strict --connect --config FILE"),
    ("Serve with other values than those of the file:", "pulsar-proxy serve --config FILE --set servicePort=6660"),
    ("Show once who holds memory and who waits:", "pulsar-proxy top --config FILE --once"),
    ("Raise a limit for ten minutes:",
     "pulsar-proxy admin set maxTopicListInFlightHeapMemSizeMB=200 --for 10m --config FILE"),
)  # fmt: skip
LOADING: Final = (
    "The file has a key and a value on each line, in the syntax of Java properties, as the file of Pulsar's own proxy.",
    "An environment variable overrides the file, and a flag overrides both.",
    "A blank number keeps its default.",
    "An unknown key is ignored with a warning that names the nearest known one.",
)


def escaped(text: str) -> str:
    """Return text for a line of text, with its macros and escapes quoted."""
    text = text.replace("\\", "\\e").replace("`", "").strip()
    return f"\\&{text}" if text.startswith((".", "'")) else text


def prose(*sentences: str) -> Iterator[str]:
    """Yield sentences as lines of text."""
    for sentence in sentences:
        for line in SENTENCE.split(sentence):
            yield from textwrap.wrap(escaped(line), 79, break_long_words=False, break_on_hyphens=False)


def sentence(text: str) -> str:
    """Return text as a sentence; a first word that is a name keeps its case."""
    first = text.partition(" ")[0].rstrip(",:;")
    begun = text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text
    return begun and f"{begun.rstrip('.')}."


def head(title: str, section: int, name: str, about: str) -> Iterator[str]:
    """Yield the first lines of a page."""
    yield from (
        HEADER,
        f".Dd {DATE}",
        f".Dt {title} {section}",
        f".Os pulsar-proxy {VERSION}",
        ".Sh NAME",
        f".Nm {name}",
        f".Nd {about}",
    )


def listed(title: str, rows: tuple[tuple[str, str], ...], tag: str) -> Iterator[str]:
    """Yield a section with a list of words and their meanings."""
    yield from (f".Sh {title}", ".Bl -tag -width Ds")
    for word, meaning in rows:
        yield f".It {tag} {word}" if " " not in word else f".It {tag} {word.replace(', ', ' , ')}"
        yield from prose(meaning)
    yield ".El"


def examples() -> Iterator[str]:
    """Yield the examples, each a sentence and the command below it."""
    for text, command in EXAMPLES:
        yield from (escaped(text), f".Dl {command.replace('--', chr(92) + '-' + chr(92) + '-')}")


def subcommands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """Yield the name, help and parser of each command below a parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                yield choice.dest, choice.help or "", action.choices[choice.dest]


def commands(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield a subsection with the options of each command that has no commands below it."""
    for name, about, command in subcommands(parser):
        words = (*path, name)
        if list(subcommands(command)):
            yield from commands(command, words)
            continue
        yield f".Ss {' '.join(words)}"
        text = about or command.description or ""
        yield from prose(sentence(text))
        actions = [action for action in command._actions if not isinstance(action, argparse._HelpAction)]
        if actions:
            yield ".Bl -tag -width Ds"
            for action in actions:
                yield from option(action)
            yield ".El"


def option(action: argparse.Action) -> Iterator[str]:
    """Yield the item of one option or argument."""
    value = argument_of(action)
    if action.option_strings:
        flags = " , ".join(f"Fl {flag[1:]}" for flag in action.option_strings)
        yield f".It {flags}{f' Ar {value}' if value else ''}"
    else:
        yield f".It Ar {value}"
    text = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
    if action.choices and not isinstance(action.metavar, str):
        text = f"{text} (one of {', '.join(map(str, action.choices))})".strip()
    yield from prose(sentence(text))


def argument_of(action: argparse.Action) -> str:
    """Return the placeholder of an option's value, or an empty text if the option has no value."""
    if action.nargs == 0:
        return ""
    if isinstance(action.metavar, str):
        return action.metavar
    return action.dest.upper() if action.option_strings else action.dest


def command_page() -> str:
    """Return the page pulsar-proxy(1)."""
    parser = whole_parser()
    lines = [
        *head("PULSAR-PROXY", 1, "pulsar-proxy", "memory-bounded proxy for Apache Pulsar"),
        ".Sh SYNOPSIS", ".Nm", ".Ar command", ".Op Ar option ...", ".Nm", ".Fl -help | -version",
        ".Sh DESCRIPTION", *prose(*ABOUT), ".Sh COMMANDS", *commands(parser),
        *listed("ENVIRONMENT", ENVIRONMENT, "Ev"), *listed("FILES", FILES, "Pa"), *listed("EXIT STATUS", EXIT, "Li"),
        ".Sh EXAMPLES", *examples(),
        *listed("SIGNALS", SIGNALS, "Dv"), ".Sh SEE ALSO", f".Xr {CONF_PAGE}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def key_item(key: Key[Any]) -> Iterator[str]:
    """Yield the item of one key."""
    default = "required" if key.required else f"default {key.default_text}" if key.default_text else "default empty"
    yield f".It Cm {key.name}"
    yield from prose(sentence(key.doc))
    text = "; ".join([default, *(fact for fact in facts(key) if fact != "required"), ORIGINS[key.since]])
    yield from prose(sentence(text))


def conf_page() -> str:
    """Return the page pulsar-proxy.conf(5)."""
    lines = [
        *head("PULSAR-PROXY.CONF", 5, "pulsar-proxy.conf", "configuration of pulsar-proxy"),
        ".Sh DESCRIPTION", *prose(*LOADING), ".Pp", ".Dl pulsar-proxy check-config --config FILE", ".Pp",
        *prose("prints every fault with its line."), ".Sh KEYS",
    ]  # fmt: skip
    for section, keys in sections():
        lines += [f".Ss {section}", ".Bl -tag -width Ds"]
        for key in keys:
            lines += key_item(key)
        lines.append(".El")
    lines += [".Sh SEE ALSO", ".Xr pulsar-proxy 1"]
    return "\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    """Return the manual pages by the name of their file."""
    return {"pulsar-proxy.1": command_page(), "pulsar-proxy.conf.5": conf_page()}
