"""The table of keys as the charts know it: for templates as JSON, for values files as a JSON schema.

Rule: a kind of value that is not known here ends the generator, so that no key gets into a chart unchecked.
"""

import json
import re
from typing import Any, Final

from proxy.app.memory.budget import LINES, Condition, Fact, Given, Is, Line, Part
from proxy.config import java_keys
from proxy.config.config import Config
from proxy.config.keys.key import Key
from proxy.config.keys.log_components import COMPONENTS, LEVELS
from proxy.config.retired import RETIRED, RetiredKey
from scripts.generated import json_records

Json = dict[str, Any]

_WHOLE: Final = re.compile(r"a whole number from (-?\d+) to (\d+)(, or an empty value)?")
_DECIMAL: Final = re.compile(r"a number from (\S+) to (\S+)")
_FRACTION: Final = Config.overload_memory_high_watermark.kind.expected
_CHOICE: Final = re.compile(r"one of (.+)")
# The printable characters that Latin-1 and UTF-8 encode alike.
_LINE: Final = r"^[ -~]*$"
_VARIABLE: Final = r"\$\{[A-Za-z0-9_]+\}"
_HOST_AND_PORT: Final = r"(localhost|[0-9.]+|\[[0-9A-Fa-f.:]+\]):[0-9]{1,5}"
_LEVEL: Final = rf" *({'|'.join(COMPONENTS)}) *= *({'|'.join(LEVELS)}) *"
_PATTERNS: Final = {
    Config.log_level_by_component.kind.expected: rf"^({_LEVEL}(,{_LEVEL})*| *{_VARIABLE} *| *)$",
    "a host name or an IP address": rf"^ *([A-Za-z0-9._:%\[\]-]*|{_VARIABLE}) *$",
    "host names or IP addresses separated by commas": rf"^ *([A-Za-z0-9._:%\[\], -]*|{_VARIABLE}) *$",
    # A number would be an octal one for some readers of YAML and a decimal one for others.
    "permissions in octal such as 0660": rf"^ *(0?[0-7]{{3}}|{_VARIABLE})? *$",
    "an IP address and a port, such as 127.0.0.1:7070 or [::1]:7070": rf"^ *({_HOST_AND_PORT}|{_VARIABLE})? *$",
    "pulsar://host:port, several separated by commas": rf"^ *(pulsar://[ -~]+|{_VARIABLE})? *$",
    "pulsar+ssl://host:port, several separated by commas": rf"^ *(pulsar\+ssl://[ -~]+|{_VARIABLE})? *$",
    "http://host:port[/path] or https://host:port[/path], several separated by commas": (
        rf"^ *(https?://[ -~]+|{_VARIABLE})? *$"
    ),
    "https://host:port[/path], several separated by commas": rf"^ *(https://[ -~]+|{_VARIABLE})? *$",
    'a JSON object of texts such as {"name": "value"}': rf"^ *(\{{[ -~]*\}}|{_VARIABLE})? *$",
}
_TEXTS: Final = (
    "text without control characters",
    "host names separated by commas, * stands for any text",
    "names of topics separated by commas, * stands for any text, ! spares",
    "IP addresses or networks such as 10.0.0.0/8 or 10.0.*.* separated by commas, or *",
    "IP addresses or networks such as 10.0.0.0/8 or 10.0.*.*, or unix, separated by commas, or *",
    "names separated by commas",
    "origins such as https://console.example.org or http://host:port separated by commas, or *",
)
_PORT_LISTS: Final = (
    "ports from 1 to 65535 separated by commas, or *",
    "ports from 1 to 65535, or ranges such as 6700-6709, separated by commas",
)
# Variables of Pulsar's image for its JVM, which the proxy accepts and ignores.
_OF_THE_JVM: Final = (
    "PULSAR_MEM", "PULSAR_GC", "PULSAR_EXTRA_OPTS", "PULSAR_EXTRA_CLASSPATH", "PULSAR_LOG_LEVEL",
    "PULSAR_LOG_ROOT_LEVEL", "PULSAR_LOG_CONF", "PULSAR_LOG_DIR", "PULSAR_GC_LOG", "PULSAR_STOP_TIMEOUT",
)  # fmt: skip
_SCALAR: Final = ["string", "number", "boolean"]
_OF_JAVA: Final = {"type": _SCALAR}


def table() -> str:
    """Return the keys and the lines of the memory budget as JSON."""
    keys = {key.name: _about(key) for key in Config.keys()}  # noqa: SIM118
    keys |= {name: {"kept": _of_kept(retired), "instead": retired.instead} for name, retired in RETIRED.items()}
    lines = ",\n".join(f"  {json.dumps(_line(line))}" for line in LINES)
    # Each line of the budget is a line of the file, so that a diff shows a change of the budget clearly.
    return "\n".join((json_records({"keys": keys})[:-2] + ",", ' "budget": [', lines, " ]", "}"))


def _line(line: Line) -> Json:
    parts = [_part(part) for part in line.parts]
    return {"owner": line.owner, "alternative": line.alternative, "dividedBy": line.divided_by, "parts": parts}


def _part(part: Part) -> Json:
    times = [factor.name if isinstance(factor, Key) else factor.value for factor in part.times]
    return {"each": part.each, "times": times, "when": [_condition(condition) for condition in part.when]}


def _condition(condition: Condition) -> Json:
    match condition:
        case Fact():
            return {"fact": condition.value}
        case Given(keys):
            return {"given": [key.name for key in keys]}
        case Is(key, word, holds):
            any_case = key.parse(word.upper()) == key.parse(word)
            return {"key": key.name, "is": f"^{'(?i)' if any_case else ''}{re.escape(word)}$", "holds": holds}


def _about(key: Key[Any]) -> Json:
    default = "" if key.required else key.default_text
    about: Json = {"default": default, "blankIsDefault": key.kind.blank_is_default, "dynamic": key.dynamic}
    if found := _WHOLE.fullmatch(key.kind.expected):
        about |= {"least": int(found[1]), "most": int(found[2])}
    if key.secret:
        about["secret"] = True
    return about


def schema() -> tuple[Json, Json]:
    """Return the schema of `configData`, and the definition of each kind of value."""
    definitions: Json = {}
    names: dict[str, str] = {}
    properties: Json = {}
    for key in Config.keys():  # noqa: SIM118
        kind = names.setdefault(key.kind.expected, f"kind.{len(names) + 1}")
        definitions[kind] = {"description": f"{key.kind.expected}.", **_of_kind(key.kind.expected)}
        reference = {"$ref": f"#/$defs/{kind}"}
        properties[key.name] = {"description": _about_key(key), **reference}
        properties[f"PULSAR_PREFIX_{key.name}"] = reference
    for name, java in java_keys.JAVA_ONLY.items():
        about: Json = {"description": f"The Java proxy has it: {java.why}."}
        about |= _of_refused(java) if java.refused else _OF_JAVA
        properties[name] = properties[f"PULSAR_PREFIX_{name}"] = about
    for name, retired in RETIRED.items():
        # The templates refuse another value in one line, which a schema of two types cannot.
        about = {"description": f"Gone: {retired.instead}.", "type": _SCALAR}
        properties[name] = properties[f"PULSAR_PREFIX_{name}"] = about
    for name in _OF_THE_JVM:
        properties[name] = {"type": "string", "description": "Pulsar's image has it for its JVM; passed over."}
    families = "|".join(map(re.escape, java_keys.JAVA_ONLY_PREFIXES))
    return {
        "type": "object",
        "description": "Keys of proxy.conf, bare or with PULSAR_PREFIX_; OTEL_* go into the environment.",
        "properties": properties,
        "patternProperties": {
            "^OTEL_[A-Z0-9_]+$": {"type": _SCALAR},
            "^(PULSAR_PREFIX_)?httpReverseProxy\\..+\\.(path|proxyTo)$": {"type": "string", "pattern": _LINE},
            f"^(PULSAR_PREFIX_)?({families}).*$": {"type": _SCALAR},
        },
        "additionalProperties": False,
    }, definitions


def _of_refused(java: java_keys.JavaKey) -> Json:
    default = java.default or ""
    values: list[object] = list(dict.fromkeys(("", default, *java.like_default, *java.warned)))
    if default in ("true", "false"):
        values.append(default == "true")
    return {"enum": values}


def _of_kept(retired: RetiredKey) -> str:
    """Return the pattern of what `RetiredKey.keeps` takes: it is refused where it is written, not at the start."""
    return f"^(?i)({'|'.join(map(_with_any_zeros, retired.kept))})$"


def _with_any_zeros(text: str) -> str:
    """Return the pattern of a text; zeros around a number change nothing."""
    if not re.fullmatch(r"\d+(\.\d+)?", text):
        return re.escape(text)
    return rf"0*{re.escape(text)}0*" if "." in text else rf"0*{text}(\.0*)?"


def _about_key(key: Key[Any]) -> str:
    parts = [key.doc, f"Unit: {key.unit}." if key.unit else "", "SIGHUP changes it." if key.dynamic else ""]
    default = "Required." if key.required else f"Default: {key.default_text or 'empty'}."
    return " ".join(filter(None, (*parts, default)))


def _of_kind(expected: str) -> Json:
    """Return the schema of a kind. Limits hold for numbers, patterns for texts: JSON schemas keep them apart."""
    if found := _WHOLE.fullmatch(expected):
        return {"type": ["integer", "string"], "minimum": int(found[1]), "maximum": int(found[2]),
                "pattern": "^ *(-?[0-9]{1,15})? *$"}  # fmt: skip
    if found := _DECIMAL.fullmatch(expected):
        return {"type": ["number", "string"], "minimum": float(found[1]), "maximum": float(found[2]),
                "pattern": r"^ *([0-9]{1,15}(\.[0-9]{1,15})?)? *$"}  # fmt: skip
    if expected == _FRACTION:
        return {
            "type": ["number", "string"],
            "minimum": 0.0,
            "maximum": 1.0,
            "pattern": r"^ *([01](\.[0-9]{1,15})?)? *$",
        }
    if expected == "true or false":
        return {"enum": [True, False, "true", "false", "True", "False", "TRUE", "FALSE", ""]}
    if expected in _PORT_LISTS:
        return {"type": ["integer", "string"], "minimum": 1, "maximum": 65535, "pattern": "^[0-9*, -]*$"}
    if expected in _TEXTS or expected == Config.event_log_salt.kind.expected:
        # The length is the proxy's to check: the value may be ${VARIABLE}.
        return {"type": "string", "pattern": _LINE}
    if expected in _PATTERNS:
        return {"type": "string", "pattern": _PATTERNS[expected]}
    if found := _CHOICE.fullmatch(expected):
        return _of_words(found[1].split(", "))
    raise TypeError(f"a kind of value without a schema: {expected!r}: say in scripts/helm/keys.py what it may be")


def _of_words(words: list[str]) -> Json:
    """Return the schema of a choice of words; the proxy accepts any case, and Pulsar's own files have capitals."""
    spelt = list(dict.fromkeys(f(word) for f in (str, str.upper, str.capitalize) for word in words))
    numbers = [int(word) for word in words if word.isdecimal()]
    if not numbers:
        return {"enum": [*spelt, ""]}
    # Helm's validator takes the number 1 and the text "1" for equal, so they cannot be in one enum.
    return {"type": ["integer", "string"], "minimum": min(numbers), "maximum": max(numbers),
            "pattern": f"^ *({'|'.join(spelt)})? *$"}  # fmt: skip
