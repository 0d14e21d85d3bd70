"""The import law and the rules that go with it, read from the source.

`protocol` may import the standard library and protobuf, `limiter` and `eventlog` the standard library,
`proxy` all of these and its libraries but none of the pipeline's, `pipeline` the event schema and its own.
Nobody imports `proxy`.

Inside `proxy` and `pipeline`, a room imports the rooms before it only, and a folder of a room of `proxy` those before
it in `SUB_ROOMS`; imports for type checking count. No modules import each other in a circle; within one folder a part
may name its owner's type, which it calls back anyway.

What makes a future, a timer or a queue for itself, and not by the parts that are there for it, stands in a list.

Tasks are started by a TaskGroup, or by the one module whose scopes stand in for it; anywhere else they could
outlive their connection.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TypeGuard

import pytest

from tests.support.each import each

ROOT = Path(__file__).resolve().parent.parent
OURS = {"protocol", "limiter", "eventlog", "proxy", "pipeline"}
MAY_IMPORT = {
    "protocol": {"protocol", "google"},
    "limiter": {"limiter"},
    "eventlog": {"eventlog"},
    "proxy": OURS - {"pipeline"},
    "pipeline": {"pipeline", "eventlog"},
}
STDLIB_ONLY = {"limiter", "eventlog"}
# What only the extra `pipeline` installs; half a gigabyte that the proxy must never need.
OF_THE_PIPELINE = {"altair", "delta", "jinja2", "numba", "numpy", "pandas", "pyarrow", "pyspark", "vl_convert"}
# Its scopes cost no task per idle connection, as a TaskGroup would; it alone may ask a loop for a task.
TASK_OWNER = ROOT / "proxy" / "core" / "tasks.py"
# The native extension may be missing: one module asks for it and says why it is not there.
NATIVE_OWNER = ROOT / "proxy" / "core" / "native.py"
LOOPS = frozenset({"loop", "_loop", "get_running_loop()", "get_event_loop()"})
FORBIDDEN = {
    "protocol": {"asyncio", "time", "random", "socket", "logging", "ssl", "threading", "selectors"},
    "limiter": {"time", "random", "socket", "logging"},
}
# What a file makes to let somebody or something wait by itself, outside of `limiter/` and `proxy/core/`, which have the
# lines, shares and clocks of all. The list has to shrink.
OWN_WAITS: dict[str, tuple[set[str], str]] = {
    "eventlog/buffer.py": ({"deque"}, "events between the loop and a thread"),
    "proxy/app/client_services.py": ({"call_later"}, "the recorder's batch of events"),
    "proxy/app/metrics/process.py": ({"call_at"}, "measures how late the loop's timers are"),
    "proxy/app/reload.py": ({"call_later", "create_future"}, "a changed key's end; reloads asked for meanwhile"),
    "proxy/auth/check_turns.py": ({"call_at", "create_future"}, "a turn, and the delay after a wrong guess"),
    "proxy/auth/providers/issuer_keys.py": ({"create_future"}, "one question an issuer; with SharedFetch"),
    "proxy/auth/signature_turns.py": ({"create_future"}, "a turn"),
    "proxy/brokers/admitted_request.py": ({"create_future"}, "an answer's head, and its body"),
    "proxy/brokers/connection.py": ({"create_future"}, "CONNECTED"),
    "proxy/brokers/dialer.py": ({"create_future"}, "the first socket that is open"),
    "proxy/brokers/discovery.py": ({"call_at"}, "the next probe"),
    "proxy/brokers/handshake.py": ({"create_future"}, "what the broker says"),
    "proxy/brokers/pool.py": ({"create_future"}, "a change of a key's connections"),
    "proxy/brokers/resolver.py": ({"call_later"}, "a query that hangs"),
    "proxy/cli/systemd.py": ({"call_at"}, "the watchdog of systemd"),
    "proxy/clients/accepting.py": ({"call_at"}, "the end of an operator's pause"),
    "proxy/clients/connection.py": ({"call_later"}, "a rate; references of a client that is gone"),
    "proxy/clients/credential_refresh.py": ({"create_future"}, "a client's new credentials"),
    "proxy/clients/large_frames.py": ({"call_later"}, "a frame's clock"),
    "proxy/clients/listener.py": ({"call_later"}, "a refused client reads why"),
    "proxy/clients/requests.py": ({"deque"}, "the lists of one client, in their order"),
    "proxy/net/listen/accept_loop.py": ({"call_later"}, "no descriptor is left"),
    "proxy/net/pump.py": ({"call_later", "create_future", "deque"}, "bodies take turns at the loop; with Turns"),
    "proxy/net/send_buffers.py": (
        {"call_later", "create_future", "deque"},
        "answers wait for memory that resting sockets give back",
    ),
    "proxy/net/spill/read_back.py": ({"call_at", "call_later", "deque"}, "reads wait for the pool, then for the disk"),
    "proxy/net/spill/spill.py": ({"call_later"}, "when to look for slow lists"),
    "proxy/net/spill/workers.py": ({"create_future"}, "the end of a thread's work"),
    "proxy/net/tls/arrivals.py": ({"call_at"}, "the next place that is due"),
    "proxy/net/tls/brokers.py": ({"create_future"}, "the end of a handshake"),
    "proxy/net/tls/streams.py": ({"create_future"}, "the end of a handshake"),
    "proxy/net/transport.py": ({"call_later", "create_future"}, "room to write; lingering close"),
    "proxy/overload/broker_questions.py": ({"deque"}, "a window of samples"),
    "proxy/overload/slices.py": ({"heapq"}, "the largest of many"),
    "proxy/relay/frame_permits.py": ({"call_later"}, "how long a client may hold a permit"),
    "proxy/relay/socket_bound.py": ({"heapq"}, "who ends first, one step at a time"),
    "proxy/relay/small_relay.py": ({"call_later"}, "references of a relay that is over"),
    "proxy/requests/forwarding.py": ({"deque"}, "requests that begin in the next iteration"),
    "proxy/requests/topic_lists/bodies.py": ({"deque"}, "the slabs of a body"),
    "proxy/requests/topic_lists/groups.py": ({"create_future"}, "a group's answer"),
    "proxy/requests/topic_lists/heap_crowds.py": ({"create_future"}, "the crowds of unproven readers"),
    "proxy/telemetry/heavy_hitters.py": ({"heapq"}, "the least counter"),
    "proxy/telemetry/refusals.py": ({"deque"}, "the last refusals"),
    "proxy/web/admin/slots.py": ({"call_later"}, "time for a request, and for its answer"),
    "proxy/web/admin/rates.py": ({"deque"}, "a window of samples"),
    "proxy/web/connection.py": ({"deque"}, "the requests that aiohttp has parsed"),
    "proxy/web/forward/bodies.py": ({"create_future"}, "waits until it is cancelled"),
    "proxy/web/forward/websockets.py": ({"call_later", "create_future"}, "the end of a tunnel; its credentials"),
    "proxy/web/forward/places.py": ({"call_at"}, "the next look while requests wait"),
    "proxy/web/http/renderings.py": ({"call_later", "create_future"}, "one rendering for all; with SharedFetch"),
    "proxy/web/ui/minutes.py": ({"deque"}, "the samples of the last minutes"),
}
# Rooms on one layer do not know each other.
ROOMS = (
    {"core"},
    {"config"},
    {"auth"},
    {"telemetry"},
    {"net"},
    {"brokers"},
    {"requests", "relay"},
    {"overload"},
    {"clients"},
    {"web"},
    {"app"},
    {"cli"},
)
PIPELINE_ROOMS = (
    {"core"},
    {"transforms", "running"},
    {"store"},
    {"sources", "replay"},
    {"ingest", "report"},
    {"jobs"},
    {"demo"},
)
# The order of a room's sub-folders; "" is the flat part. Folders on one layer do not know each other.
SUB_ROOMS: dict[str, tuple[set[str], ...]] = {
    "config": ({"keys"}, {""}),
    "auth": ({""}, {"own", "providers"}),
    "telemetry": ({""}, {"events"}),
    "net": ({"spill", "listen"}, {""}, {"tls"}),
    "requests": ({""}, {"topic_lists"}),
    "relay": ({"memory"}, {""}),
    "web": ({"http"}, {"forward"}, {""}, {"admin"}, {"ui"}),
    "app": ({"metrics"}, {"memory"}, {""}),
    "cli": ({"admin", "demo"}, {"top"}, {""}),
}
LAYER_OF = {room: layer for layer, rooms in enumerate(ROOMS) for room in rooms}
LAYERS = {
    "proxy": LAYER_OF,
    "pipeline": {room: layer for layer, rooms in enumerate(PIPELINE_ROOMS) for room in rooms},
}
PACKAGES = sorted(name for name in OURS if (ROOT / name).is_dir())
SOURCES = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))


def offenders(check: Callable[[Path, ast.Module], Sequence[object]]) -> dict[str, Sequence[object]]:
    """Return what a check finds, by file; all files that are at fault, and no others."""
    found = {str(path.relative_to(ROOT)): check(path, parse(path)) for path in SOURCES}
    return {name: faults for name, faults in found.items() if faults}


def refuse(faults: Mapping[str, Sequence[object]]) -> None:
    """Fail with a line for each file that is at fault: pytest would cut a long dictionary."""
    assert not faults, "\n".join(f"{name}: {found}" for name, found in faults.items())


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def modules_imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: import by the full name"
            assert node.module is not None
            yield node.module
            # A name out of a package may be a module or a folder of it.
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name for name in names if is_module(name))


def is_module(name: str) -> bool:
    """Return whether `name` is a module or a package of this repository."""
    path = ROOT / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists()


def broken_imports(package: str, tree: ast.Module) -> list[str]:
    broken = []
    for module in modules_imported(tree):
        top = module.partition(".")[0]
        ours_but_not_allowed = top in OURS and top not in MAY_IMPORT[package]
        foreign = top not in OURS and top not in sys.stdlib_module_names and top not in MAY_IMPORT[package]
        not_allowed = foreign and package in STDLIB_ONLY | {"protocol"}
        too_heavy = package != "pipeline" and top in OF_THE_PIPELINE
        if ours_but_not_allowed or not_allowed or too_heavy or top in FORBIDDEN.get(package, ()):
            broken.append(module)
    return broken


def room_of(module: str) -> str | None:
    """Return the room of a module with its package; None for other packages and for files outside of all rooms."""
    package, _, rest = module.partition(".")
    room = rest.partition(".")[0]
    return f"{package}.{room}" if room in LAYERS.get(package, ()) else None


def layer_of(room: str) -> int:
    package, _, name = room.partition(".")
    return LAYERS[package][name]


def arrows_up(importer: str, tree: ast.Module) -> list[str]:
    """List the modules that `importer` imports from a room after its own, or from another on its own layer."""
    room = room_of(importer)
    if room is None:
        return []
    return [
        module
        for module in modules_imported(tree)
        if (other := room_of(module)) is not None and other != room and layer_of(other) >= layer_of(room)
    ]


def folder_of(module: str) -> str:
    """Return the sub-folder of a room that a module of `proxy` is in; "" is the flat part."""
    parts = module.split(".")
    return parts[2] if (ROOT / "proxy" / parts[1] / parts[2]).is_dir() else ""


def arrows_between_folders(importer: str, tree: ast.Module) -> list[str]:
    """List the modules that `importer` imports from a later folder of its own room, or another on its own layer."""
    package, _, rest = importer.partition(".")
    room = rest.partition(".")[0]
    if package != "proxy" or room not in SUB_ROOMS or importer.endswith("__init__"):
        return []
    layers = {folder: layer for layer, folders in enumerate(SUB_ROOMS[room]) for folder in folders}
    own = folder_of(importer)
    inside = [name for name in modules_imported(tree) if room_of(name) == f"proxy.{room}" and name.count(".") > 1]
    return [name for name in inside if (other := folder_of(name)) != own and layers[other] >= layers[own]]


def imports_of_ours(name: str, tree: ast.Module, known: Set[str]) -> set[str]:
    """Return the modules in `known` that `tree` imports at run time, by itself or a name out of them.

    Rooms and folders count what is imported for types, too: so a circle of types is one within a folder.
    """
    blocks = (node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    for_types = {id(statement) for block in blocks for statement in block.body}
    at_run_time = ast.Module([node for node in ast.walk(tree) if _imports(node) and id(node) not in for_types], [])
    return ({*modules_imported(at_run_time)} & known) - {name}


def _imports(node: ast.AST) -> TypeGuard[ast.stmt]:
    return isinstance(node, ast.Import | ast.ImportFrom)


def lone_tasks(tree: ast.Module, loops: frozenset[str] = LOOPS) -> list[int]:
    """List the lines that start a task which nobody owns."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and _starts_lone_task(node, loops))
        or (isinstance(node, ast.ImportFrom) and node.module == "asyncio" and _imports_starter(node))
    ]


def _starts_lone_task(node: ast.Attribute, loops: frozenset[str]) -> bool:
    owner = ast.unparse(node.value).split(".")[-1]
    return node.attr == "ensure_future" or (node.attr == "create_task" and owner in {"asyncio", *loops})


def _imports_starter(node: ast.ImportFrom) -> bool:
    return any(alias.name in ("create_task", "ensure_future") for alias in node.names)


def own_waits(tree: ast.Module) -> set[str]:
    """Return the means to wait that a module makes for itself."""
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    means = attributes & {"create_future", "call_later", "call_at", "deque"}
    return means | (names & {"deque"}) | ({*modules_imported(tree)} & {"heapq"})


# Several tests look at each file.
@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def test_source_obeys_the_import_law() -> None:
    refuse(offenders(lambda path, tree: broken_imports(path.relative_to(ROOT).parts[0], tree)))


def test_room_imports_earlier_rooms_only() -> None:
    refuse(offenders(lambda path, tree: arrows_up(module_of(path), tree)))


def test_folder_imports_earlier_folders_of_its_room_only() -> None:
    refuse(offenders(lambda path, tree: arrows_between_folders(module_of(path), tree)))


@each("package", LAYERS)
def test_every_file_is_in_a_room(package: str) -> None:
    assert {path.parent.name for path in (ROOT / package).glob("*/__init__.py")} == LAYERS[package].keys()
    outside = {"proxy": "__main__.py", "pipeline": "cli.py"}
    assert {path.name for path in (ROOT / package).glob("*.py")} == {"__init__.py", outside[package]}


def test_every_folder_of_a_room_has_its_place() -> None:
    for room in LAYER_OF:
        folders = {path.parent.name for path in (ROOT / "proxy" / room).glob("*/__init__.py")}
        declared = set().union(*SUB_ROOMS.get(room, ()))
        assert folders == declared - {""}, room


def test_no_modules_import_each_other_in_a_circle() -> None:
    files = {module_of(path).removesuffix(".__init__"): path for path in SOURCES}
    ours = {name: path for name, path in files.items() if name.partition(".")[0] in LAYERS}
    # It raises CycleError, which names the circle.
    TopologicalSorter({name: imports_of_ours(name, parse(path), ours.keys()) for name, path in ours.items()}).prepare()


def test_whole_proxy_is_seen_by_serve_only() -> None:
    # For types, too: a part that is given all of the proxy takes what it likes.
    seen = offenders(lambda path, tree: sorted({*modules_imported(tree)} & {"proxy.app.proxy"}))
    assert seen.keys() == {"proxy/cli/serve.py"}


def test_every_task_has_a_group() -> None:
    refuse(offenders(lambda path, tree: lone_tasks(tree, frozenset() if path == TASK_OWNER else LOOPS)))


def test_only_the_parts_let_somebody_wait_but_for_a_list() -> None:
    parts = (ROOT / "limiter", ROOT / "proxy" / "core")
    others = [path for path in SOURCES if not any(path.is_relative_to(part) for part in parts)]
    found = {str(path.relative_to(ROOT)): waits for path in others if (waits := own_waits(parse(path)))}
    assert found == {name: waits for name, (waits, _) in OWN_WAITS.items()}


def test_native_extension_is_imported_in_one_place() -> None:
    # By a statement, or by a text that is imported.
    named = re.compile(r"(?m)^\s*(?:from|import) pulsar_proxy_native\b|[\"']pulsar_proxy_native\b")
    assert [path for path in SOURCES if named.search(path.read_text())] == [NATIVE_OWNER]


@pytest.mark.threat("credentials-past-the-gate")
def test_the_gate_alone_says_who_may_be_dialled() -> None:
    assert [path.name for path in SOURCES if "CheckedTarget(" in path.read_text()] == ["gate.py"]


@each("name", ["framing.py", "frames.py", "slabs.py", "errors.py"])
def test_framing_does_without_protobuf(name: str) -> None:
    imported = set(modules_imported(parse(ROOT / "protocol" / name)))
    assert not {module for module in imported if module.startswith(("google", "protocol.pb"))}


@each(
    ("package", "code", "broken"),
    [
        ("protocol", "import time", ["time"]),
        ("protocol", "from asyncio import Future", ["asyncio"]),
        ("protocol", "def f():\n    import proxy.app", ["proxy.app"]),
        ("limiter", "from random import random", ["random"]),
        ("pipeline", "import pyspark\nfrom eventlog import schema", []),
        ("pipeline", "from proxy import config", ["proxy", "proxy.config"]),
        ("proxy", "import pyarrow", ["pyarrow"]),
    ],
)
def test_law_finds_what_it_forbids(package: str, code: str, broken: list[str]) -> None:
    assert broken_imports(package, ast.parse(code)) == broken


@each(
    ("code", "lines"),
    [
        ("asyncio.create_task(f())", [1]),
        ("from asyncio import create_task", [1]),
        ("self._tasks.create_task(f())\ngroup.create_task(g())", []),
    ],
)
def test_law_finds_tasks_nobody_owns(code: str, lines: list[int]) -> None:
    assert lone_tasks(ast.parse(code)) == lines


@each(
    ("code", "found"),
    [
        ("import heapq", {"heapq"}),
        ("from heapq import heappush\nfrom collections import deque", {"heapq", "deque"}),
        ("import collections\ncollections.deque()", {"deque"}),
        (
            "f(loop.call_later)\nself._loop.create_future()\nclock.call_at(1, f)",
            {"call_later", "create_future", "call_at"},
        ),
        ("def call_at(): ...\nloop.call_soon(f)", set()),
    ],
)
def test_law_finds_means_to_wait(code: str, found: set[str]) -> None:
    assert own_waits(ast.parse(code)) == found


@each(
    ("importer", "code", "up"),
    [
        ("proxy.core.log", "from proxy.config.config import Config", ["proxy.config.config"]),
        ("proxy.clients.connection", "from proxy.core.log import Logger\nimport proxy.relay.relay", []),
        ("proxy.core.log", "from proxy import web", ["proxy.web"]),
    ],
)
def test_law_finds_arrows_that_point_up(importer: str, code: str, up: list[str]) -> None:
    assert arrows_up(importer, ast.parse(code)) == up


@each(
    ("importer", "code", "up"),
    [
        ("proxy.web.http.paths", "import proxy.web.forward.headers", ["proxy.web.forward.headers"]),
        ("proxy.auth.own.oauth2", "from proxy.auth.providers.basic import B", ["proxy.auth.providers.basic"]),
        (
            "proxy.web.admin.views",
            "import proxy.web.port\nimport proxy.web.http.paths\nimport proxy.web.admin.paging",
            [],
        ),
        ("proxy.web.http.paths", "from proxy.web import port", ["proxy.web.port"]),
    ],
)
def test_law_finds_arrows_between_folders(importer: str, code: str, up: list[str]) -> None:
    assert arrows_between_folders(importer, ast.parse(code)) == up


def test_imports_for_type_checking_point_up_but_close_no_circle() -> None:
    code = ast.parse("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from proxy.app import proxy")
    assert imports_of_ours("proxy.app.x", code, {"proxy.app.proxy"}) == set()
    assert arrows_up("proxy.core.log", code) == ["proxy.app", "proxy.app.proxy"]


def test_law_finds_what_a_function_imports() -> None:
    code = ast.parse("def f():\n    from proxy.app import proxy")
    assert imports_of_ours("proxy.app.x", code, {"proxy.app.proxy"}) == {"proxy.app.proxy"}
