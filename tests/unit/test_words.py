"""The lint of docstrings and comments: refused examples beside the sentences to write instead."""

import ast
import tomllib
from pathlib import Path

import pytest

from scripts import check_words
from scripts.lint import PACKAGES, report

ROOT = Path(check_words.__file__).resolve().parent.parent

# Refused, passed: the same thing said without and with its noun.
PROSE = [
    ("It is kept until then.", "The permit is kept until then."),
    ("Its size is an estimate.", "The answer's size is an estimate."),
    ("Who waits longest is served first.", "The longest waiter is served first."),
    ("Whoever asks next starts anew.", "The next request starts a new run."),
    ("Ask again, whoever you are.", "Every client asks again."),
    ("What both kinds of connections owe a broker.", "PING handling shared by both kinds of connections."),
    ("That of the client is closed.", "The client's socket is closed."),
    ("Those who expired were no part of it.", "Expired waiters are not counted."),
    ("Which is why the task is shielded.", "The task is shielded for this reason."),
    ("One that has left gets nothing.", "A member that left gets nothing."),
    ("Two would keep the list.", "A second reference would keep the list."),
    ("Of all waiters the oldest.", "The oldest waiter."),
    ("Behind all that is counted.", "Last, after all that is counted."),
    ("They outlive the permit.", "The buffers outlive the permit."),
    ("Them the limiter counts.", "The limiter counts buffers."),
    ("This is the limit.", "This limit holds for one client."),
    ("These are closed.", "These sockets are closed."),
    ("How rows are written.", "Helpers that write rows."),
    ("How a client is named.", "How many clients there are."),
    ("The socket is open for ever.", "The socket is open forever."),
    ("The socket is closed behind the answer.", "The bytes behind the size field are the command."),
    ("The frame is sent. It may be late.", "The frame is sent. The answer may be late."),
]

# Refused, passed: bodies of `def release_permit(self, size): ...` in a class `Waiter`.
FUNCTIONS = [
    ("Give the number of bytes.", "Return the number of bytes."),
    ("Tell whether the frame is whole.", "Return whether the frame is complete."),
    ("Hear that the connection is gone.", "Called when the connection is lost."),
    ("Do what is needed.", "Do nothing: the provider holds no threads."),
    ("Have the client wait.", "Suspend the client."),
    ("Know the size of a frame.", "Return the size of a frame."),
    ("Take over the socket.", "Take the socket out of its transport."),
    ("Never happens.", "Raise an error: no sink is set."),
    ("The bytes of a frame.", "Return the bytes of a frame."),
    ("Release the permit.", "Release the permit and wake the next waiter."),
]

# Refused, passed: names of classes.
CLASSES = [("Told", "ThrottleReport")]


def reasons(source: str) -> list[str]:
    return [finding.reason for finding in check_words.check_source(source)]


def method(docstring: str, decorator: str = "") -> str:
    return f'class Waiter:\n    {decorator}\n    def release_permit(self, size):\n        """{docstring}"""\n'


@pytest.mark.parametrize(("refused", "passed"), PROSE)
def test_sentences_name_their_noun(refused: str, passed: str) -> None:
    for form in ('"""{}"""\n', "# {}\n", "size = 1  # {}\n", 'class Waiter:\n    """{}"""\n', 'Key(doc="{}")\n'):
        assert len(reasons(form.format(refused))) == 1
        assert reasons(form.format(passed)) == []


@pytest.mark.parametrize(("refused", "passed"), FUNCTIONS)
def test_functions_begin_with_a_usual_verb_and_say_more_than_their_name(refused: str, passed: str) -> None:
    assert len(reasons(method(refused))) == 1
    assert reasons(method(passed)) == []


@pytest.mark.parametrize(("refused", "passed"), CLASSES)
def test_classes_are_named_by_a_noun(refused: str, passed: str) -> None:
    for form in ("class {}:\n    pass\n", "class Waiter:\n    class {}:\n        pass\n"):
        assert len(reasons(form.format(refused))) == 1
        assert reasons(form.format(passed)) == []


def test_properties_may_be_noun_phrases() -> None:
    assert reasons(method("The bytes of a frame.", "@property")) == []
    assert len(reasons(method("Give the bytes of a frame.", "@property"))) == 1


def test_a_sentence_over_several_lines_of_comment_is_one() -> None:
    assert reasons("# The permit is released\n# what the client sent\n") == []
    assert len(reasons("# The permit is released.\n# What the client sent is dropped.\n")) == 1


def test_a_name_in_code_marks_is_a_noun() -> None:
    assert reasons('"""`it` is the name of a variable."""\n') == []


def test_long_public_methods_need_a_docstring() -> None:
    body = "        pass\n" * (check_words.LONG + 1)
    assert len(reasons(f"class Waiter:\n    def release(self):\n{body}")) == 1
    assert reasons(f"class Waiter:\n    def _release(self):\n{body}") == []
    assert reasons(f"class Waiter:\n    @property\n    def release(self):\n{body}") == []
    assert reasons(f"class Waiter(Protocol):\n    def release(self):\n{body}") == []
    assert reasons("class Waiter:\n    def release(self):\n        pass\n") == []


def test_a_finding_names_the_line_and_the_sentence() -> None:
    (finding,) = check_words.check_source('"""Frames."""\n\n# It is whole.\n')
    assert (finding.line, finding.sentence) == (3, "It is whole.")


def test_every_package_of_the_wheel_is_read() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(PACKAGES) == set(settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])


def test_finished_rooms_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(check_words.check_source, [], check_words.READ) == 0, capsys.readouterr().out


def test_the_lint_needs_nothing_but_the_standard_library() -> None:
    tree = ast.parse(Path(check_words.__file__).read_text())
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert imported == {"ast", "io", "re", "sys", "tokenize"}
