"""Check the English of docstrings, comments and class names: named nouns, usual verbs, no riddles.

Run by `make lint`. Refused examples stand beside passed ones in tests/unit/test_words.py.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator

from scripts.lint import PACKAGES, Finding, report

READ = (*PACKAGES, "benchmarks")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Sentences that begin so leave the reader to guess the noun.
NOUNLESS = _words(
    """
    it its it's he she his her they them their theirs who whoever whom whose what whatever which whichever that
    those one ones two of behind
    """
)
# "This frame" names the noun, "This is" does not.
DEMONSTRATIVES = frozenset({"this", "these"})
NOT_A_NOUN = _words(
    """
    is are was were be has have had does do did can cannot could may might must shall should will would means makes
    make keeps keep lets let gives give needs need also alone only never always not too way one ones of in costs
    cost takes take happens says holds hold
    """
)
# "How many frames" is a noun phrase, "How rows are written" is a clause.
HOW_NOUNS = frozenset({"many", "much", "long", "far", "often", "to"})
# Seconds, turns and events come after, not behind.
BEHIND_IN_TIME = re.compile(
    r"\bbehind (?:it all|all|that|which|whom|the (?:end|close|start|stop|last|first|reply|answer|reload|shutdown"
    r"|handshake|permit|turn|drain|response|flush|write)\b(?! of))",
    re.IGNORECASE,
)
FOR_EVER = re.compile(r"\bfor ever\b", re.IGNORECASE)
RIDDLE = re.compile(r"\bwho(?:so)?ever\b", re.IGNORECASE)
PRIVATE_VERBS = _words(
    """
    give tell hear have know say see note let learn owe own lay bring lend hand book name go do
    """
)
PRIVATE_PHRASES = (("take", "over"), ("look", "whether"), ("look", "for"))
# Add a verb that the standard library or the field uses; describe the effect with one of these otherwise.
USUAL_VERBS = _words(
    """
    abort accept acknowledge acquire add adjust admit adopt advance allocate allow analyze announce answer append
    apply arm ask assemble assert assign attach authenticate authorize await balance begin bind block bound build
    buffer cache calculate call called cancel cap change charge check choose clamp classify clean clear close
    collect combine commit compare complete compress compute configure connect consume continue convert copy correct
    count create cut deactivate decide declare decode decompress decrement decrypt deduct defer define delay delete
    deliver deny describe deserialize detach detect determine dial disable disarm discard disconnect dispatch
    display divide draw drain drive drop dump emit empty enable encode encrypt end enforce enqueue enter escape
    establish estimate evict examine exchange exclude execute exempt exit expand expire explain export expose extend
    extract fail feed fetch fill filter find finish fire flag flush follow force forget format forward free freeze
    fulfil generate get grant group grow guard handle hash hide hold identify ignore implement import include
    increase increment index inform initialize insert inspect install invalidate invoke issue iterate join judge
    keep kill launch leave limit link list listen load locate lock log look lookup lower make map mark mask match
    measure merge move multiply notify observe obtain omit open order overwrite pack parse pass patch pause peek
    pick place plan poll pop postpone prepare prepend present preserve prevent print probe proceed process produce
    propagate protect provide publish pull push put quote raise raised read reassign rebuild receive recompute
    reconnect record recover reduce refill refresh refuse register reject relay release reload remember remove
    rename render renew reopen reorder repair repeat replace replay reply report request require reschedule reserve
    reset resize resolve respond restart restore resume retain retry return reuse revert rewrite roll rotate round
    run sample save scan schedule scrub search select send separate serialize serve set settle show shrink shut sign
    signal size skip sleep slice sort split stand start step stop store strip submit subscribe subtract sum suppress
    suspend swap switch sync take terminate test throttle tick touch track transfer transform translate treat
    trigger trim truncate trust try turn unbind undo unlink unlock unpack unregister unreserve unsubscribe update
    upgrade use validate verify visit wait wake walk warn watch wipe withdraw wrap write yield
    """
)
# Class names that say what was done and not what the object is: `ThrottleReport` names the noun.
NOUNLESS_CLASSES = frozenset({"Told"})
PROPERTIES = frozenset({"property", "cached_property", "setter", "abstractproperty"})
FILLERS = _words(
    """
    a an the this that its his her their of to for in on at by with from into and or as is are be it all self
    current new given only same own return whether count number get
    """
)
# A public method with a longer body needs a docstring; ruff asks for those of modules, classes and functions.
LONG = 10

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')`\]]*\s+(?=[\"'(`\[]*[A-Z])|\n\s*\n|\n\s*(?:[-*]|\d+\.)\s+")
_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|etc|vs|cf)\.\s")
_WORD = re.compile(r"[A-Za-z][A-Za-z']*")
_NAME_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def check_source(source: str) -> list[Finding]:
    """Return the findings of one module, by line."""
    tree = ast.parse(source)
    found = [*_check_comments(source), *_check_docs(tree)]
    return sorted(found, key=lambda finding: finding.line)


def check_prose(text: str, line: int) -> Iterator[Finding]:
    """Yield a finding for each sentence that begins without a noun or uses a refused word."""
    for sentence in sentences(text):
        reason = _fault_of(sentence)
        if reason is not None:
            yield Finding(line, sentence, reason)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, each on one line."""
    for piece in _SENTENCE_END.split(_ABBREVIATION.sub(r"\1, ", text)):
        sentence = " ".join(piece.split()).lstrip("-*# ")
        if sentence:
            yield sentence


def _fault_of(sentence: str) -> str | None:
    words = [word.lower() for word in _WORD.findall(sentence)[:2]]
    # A sentence that begins with code or a figure has a name for its noun.
    if words and sentence.lstrip("\"'(").lower().startswith(words[0]):
        first, second = words[0], words[1] if len(words) > 1 else ""
        if first in NOUNLESS:
            return f'begins with "{first}": name the noun'
        if first in DEMONSTRATIVES and (second in NOT_A_NOUN or not second):
            return f'begins with "{first} {second}": name the noun'
        if first == "how" and second not in HOW_NOUNS:
            return 'begins with "how": name the noun'
    if RIDDLE.search(sentence):
        return '"whoever": name the noun'
    if FOR_EVER.search(sentence):
        return '"for ever": write "forever" or name the bound'
    if BEHIND_IN_TIME.search(sentence):
        return '"behind" of time: write "after"'
    return None


def _check_comments(source: str) -> Iterator[Finding]:
    for line, text in _comment_blocks(source):
        yield from check_prose(text, line)


def _comment_blocks(source: str) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of each block of comments; a comment after code is a block of its own."""
    start, column, lines = 0, 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        row, at = token.start
        alone = not token.line[:at].strip()
        if not (lines and alone and at == column and row == start + len(lines)):
            if lines:
                yield start, "\n".join(lines)
            start, column, lines = row, at if alone else -1, []
        lines.append(token.string.lstrip("#").strip())
    if lines:
        yield start, "\n".join(lines)


def _check_docs(tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from check_prose(node.value.value, node.lineno)
        elif isinstance(node, ast.keyword) and node.arg == "doc" and isinstance(node.value, ast.Constant):
            yield from check_prose(str(node.value.value), node.value.lineno)
    yield from _check_functions(tree, None)


def _check_functions(node: ast.AST, owner: ast.ClassDef | None) -> Iterator[Finding]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            if child.name in NOUNLESS_CLASSES:
                yield Finding(child.lineno, f"class {child.name}", "names no noun: write what the object is")
            yield from _check_functions(child, child)
        elif isinstance(child, Function):
            yield from _check_function(child, owner)
            yield from _check_functions(child, None)
        else:
            yield from _check_functions(child, owner)


def _check_function(function: Function, owner: ast.ClassDef | None) -> Iterator[Finding]:
    text = ast.get_docstring(function)
    if text is None:
        if owner is not None and _needs_docstring(function, owner):
            yield Finding(function.lineno, f"def {function.name}", f"public, over {LONG} lines, without a docstring")
        return
    line = function.body[0].lineno
    first = next(sentences(text), "")
    reason = _opening_fault(first, is_property=bool(PROPERTIES & _decorators(function)))
    if reason is not None:
        yield Finding(line, first, reason)
    elif _restates(text, function.name, owner):
        yield Finding(line, first, "only restates the name: delete the docstring or say more")


def _needs_docstring(function: Function, owner: ast.ClassDef) -> bool:
    if function.name.startswith("_") or owner.name.startswith("_") or "Protocol" in map(_last_name, owner.bases):
        return False
    if {*PROPERTIES, "override", "overload"} & _decorators(function):
        return False
    return (function.end_lineno or 0) - function.body[0].lineno + 1 > LONG


def _opening_fault(sentence: str, *, is_property: bool) -> str | None:
    words = [word.lower() for word in _WORD.findall(sentence)[:2]]
    if not words or words[0] in NOUNLESS or words[0] in DEMONSTRATIVES:
        return None  # Reported as prose already.
    if tuple(words) == ("do", "nothing"):
        return None
    if words[0] in PRIVATE_VERBS or tuple(words) in PRIVATE_PHRASES:
        return f'begins with "{words[0]}": write Return, Send, Record, Called when, ...'
    if not is_property and words[0] not in USUAL_VERBS:
        return f'does not begin with a usual verb: "{words[0]}"'
    return None


def _restates(text: str, name: str, owner: ast.ClassDef | None) -> bool:
    if len(list(sentences(text))) > 1:
        return False
    said = {_stem(word.lower()) for word in _WORD.findall(text)} - FILLERS
    known = {_stem(part.lower()) for part in _NAME_PART.findall(name)}
    if owner is not None:
        known |= {_stem(part.lower()) for part in _NAME_PART.findall(owner.name)}
    return said <= known


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) > len(ending) + 2:
            return word.removesuffix(ending)
    return word


def _decorators(function: Function) -> set[str]:
    return {_last_name(decorator) for decorator in function.decorator_list}


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Call | ast.Subscript):
        return _last_name(node.func if isinstance(node, ast.Call) else node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


if __name__ == "__main__":
    sys.exit(report(check_source, sys.argv[1:], READ))
