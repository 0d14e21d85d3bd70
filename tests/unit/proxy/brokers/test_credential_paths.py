"""The proxy's own credentials leave by known paths only, read from the source: every one of them passes a gate."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
SOURCES = sorted((ROOT / "proxy").rglob("*.py"))

# Each name, and the modules that may use it. A new module here must say why its peer may have the credentials.
ALLOWED = {
    # The gate alone says who may be dialled; `Dialer.connect` takes nothing else.
    "CheckedTarget(": {"proxy/brokers/gate.py"},
    # Frames with credentials, for connections that a `Dialer` opened to a CheckedTarget.
    ".for_client(": {"proxy/relay/direct_mode.py"},
    # A probe of a configured broker sends the CONNECT that requests send, behind the same gate.
    ".for_requests(": {"proxy/brokers/pool.py", "proxy/brokers/handshake.py"},
    "._connect_frames.renewed(": {"proxy/brokers/pool.py"},
    "._connect_frames.answer(": {"proxy/brokers/pool.py"},
    # Answers the challenges of a peer that was dialled as above.
    ".converse(": {"proxy/relay/direct_mode.py"},
    "._frames.answer(": {"proxy/brokers/handshake.py"},
    "._dialer.connect(": {"proxy/brokers/handshake.py", "proxy/brokers/pool.py", "proxy/relay/direct_mode.py"},
    # The credentials themselves. The event log's topic is written to the configured cluster.
    "._own.current(": {"proxy/brokers/connect_frames.py", "proxy/telemetry/events/topic_credentials.py"},
    "own.current(": {"proxy/auth/own/broker_credentials.py"},
    "authorization_header(": {
        "proxy/brokers/list_question.py",  # configured web services only
        "proxy/overload/broker_questions.py",  # the same, and no redirect is followed
        "proxy/telemetry/events/topic_credentials.py",
        "proxy/web/forward/own_credentials.py",
    },
    "identity_headers(": {"proxy/web/forward/reverse_proxy.py"},
    # The opening of a WebSocket goes to configured web services only, and follows no redirect.
    "._reverse_proxy.websocket_headers(": {"proxy/web/forward/websockets.py"},
    "self.identity_headers(": {"proxy/web/forward/reverse_proxy.py"},
}


def calls(path: Path) -> Iterator[str]:
    """Yield every call of a module as text, `receiver.method(`, without its arguments."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func) + "("


def uses(text: str, name: str) -> bool:
    """Return whether a call is one of `name`: a method of any receiver, or exactly that function or receiver."""
    return text.endswith(name) if name.startswith(".") else text == name


@pytest.mark.threat("credentials-past-the-gate")
@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_credentials_leave_by_known_paths_only(name: str) -> None:
    found = {str(path.relative_to(ROOT)) for path in SOURCES for text in calls(path) if uses(text, name)}
    assert found == ALLOWED[name]


def receivers(path: Path) -> set[str]:
    return {text for text in calls(path) if text.endswith((".current(", "own_credentials("))}


def test_no_other_code_reads_the_credentials() -> None:
    known = {
        "proxy/auth/own/broker_credentials.py": {"own.current("},
        "proxy/brokers/connect_frames.py": {"self._own.current("},
        "proxy/telemetry/events/topic_credentials.py": {"self._own.current("},
        "proxy/telemetry/events/topic.py": {"own_credentials("},
        "proxy/app/identities.py": {"own_credentials("},
    }
    found = {str(path.relative_to(ROOT)): receivers(path) for path in SOURCES}
    assert {path: texts for path, texts in found.items() if texts} == known


def test_headers_with_credentials_are_added_in_one_place_behind_the_check() -> None:
    tree = ast.parse((ROOT / "proxy/web/forward/reverse_proxy.py").read_text(encoding="utf-8"))
    places = [
        ast.unparse(node.test)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and any("exchange.identity_headers" in ast.unparse(line) for line in node.body)
    ]
    assert places == ["exchange.trusted"]
