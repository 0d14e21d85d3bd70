"""What the service manager is told, over a real datagram socket, and the unit file that asks for it."""

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proxy.app.ports import ACCEPT_BACKLOG
from proxy.cli.systemd import ServiceManager
from proxy.config.config import Config
from tests.support.loops.clock import ManualClock
from tests.support.programs import ran, succeeded
from tests.support.tools import tool

ROOT = Path(__file__).resolve().parents[4]
UNIT = ROOT / "deploy" / "systemd" / "pulsar-proxy.service"
TEMPLATE = UNIT.with_name("pulsar-proxy@.service")
SOCKET = UNIT.with_name("pulsar-proxy.socket")


class Listening:
    """A service manager's end of the socket."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(address)

    def heard(self) -> list[str]:
        messages = []
        while True:
            try:
                messages.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return messages

    def close(self) -> None:
        self._socket.close()


@contextmanager
def managed(address: str, setting: str, **variables: str) -> Iterator[tuple[Listening, ServiceManager]]:
    listening = Listening(address)
    manager = ServiceManager({"NOTIFY_SOCKET": setting, **variables}, 42)
    try:
        yield listening, manager
    finally:
        manager.close()
        listening.close()


def test_an_abstract_address_begins_with_an_at_sign() -> None:
    name = f"pulsar-proxy-test-{os.getpid()}"
    with managed(f"\0{name}", f"@{name}") as (listening, manager):
        manager.ready("two\nlines")
        assert listening.heard() == ["READY=1\nSTATUS=two lines"]


def test_the_watchdog_is_fed_twice_in_its_time_until_the_end(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with managed(path, path, WATCHDOG_USEC="30000000", WATCHDOG_PID="42") as (listening, manager):
        clock = ManualClock()
        manager.watch(clock)
        clock.advance(60.0)
        assert listening.heard() == ["WATCHDOG=1"] * 5
        manager.close()
        clock.advance(60.0)
        assert listening.heard() == []
        assert not clock.pending


@pytest.mark.parametrize(
    "variables",
    [{}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "43"}],
)
def test_nobody_else_s_watchdog_is_fed(tmp_path: Path, variables: dict[str, str]) -> None:
    path = str(tmp_path / "notify")
    with managed(path, path, **variables) as (listening, manager):
        clock = ManualClock()
        manager.watch(clock)
        assert not clock.pending
        assert listening.heard() == []


@pytest.mark.parametrize("address", ["", "relative", "vsock:2:1"])
def test_without_a_manager_nothing_happens(address: str) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000"}, 42)
    manager.ready("alone")
    assert manager.watchdog_seconds == 0.0
    manager.close()


def test_a_manager_that_went_away_is_no_error_of_the_proxy_s(tmp_path: Path) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")}, 42)
    manager.ready("alone")
    manager.close()
    manager.ready("closed")


# --- the unit -------------------------------------------------------------------------------------


def unit(path: Path = UNIT) -> dict[str, list[str]]:
    settings: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.startswith(("#", "[")):
            settings.setdefault(name, []).append(value)
    return settings


def test_the_unit_asks_for_what_the_proxy_tells() -> None:
    settings = unit()
    assert settings["Type"] == ["notify"]
    assert settings["NotifyAccess"] == ["main"]
    assert settings["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert int(settings["WatchdogSec"][0]) >= 10
    assert settings["Restart"] == ["on-failure"]


@pytest.mark.parametrize("path", [UNIT, TEMPLATE], ids=lambda path: path.name)
def test_event_files_and_lists_have_a_place_of_their_own_under_the_unit(path: Path) -> None:
    settings = unit(path)
    # Below /var/log and /var/cache: nothing else can be written to.
    assert settings["LogsDirectory"] == settings["CacheDirectory"] == ["pulsar-proxy"]
    # Who asked for what is nobody's but the operator's.
    assert settings["LogsDirectoryMode"] == settings["CacheDirectoryMode"] == ["0700"]


def test_an_instance_is_the_unit_that_takes_over_and_leaves_its_directory_to_the_next() -> None:
    plain, instance = unit(), unit(TEMPLATE)
    own = {name: values for name, values in instance.items() if values != plain.get(name)}
    assert own.keys() == {"Description", "Conflicts", "ExecStart", "RuntimeDirectoryPreserve", "User"}
    assert instance.keys() >= plain.keys()
    assert own["ExecStart"] == [plain["ExecStart"][0].replace("serve", "serve --take-over")]
    # With instances that each had a directory, or a user, of their own the next one would not find the control socket.
    assert own["RuntimeDirectoryPreserve"] == ["yes"]
    assert "%i" not in "".join(own["User"] + instance["RuntimeDirectory"] + instance["Environment"])


def test_the_sockets_of_systemd_are_those_of_the_default_ports() -> None:
    ports = {key.default for key in (Config.service_port, Config.web_service_port)}
    (address,) = Config.bind_address.default
    settings = unit(SOCKET)
    assert set(settings["ListenStream"]) == {f"{address}:{port}" for port in ports}
    assert settings["Backlog"] == [str(ACCEPT_BACKLOG)]


@pytest.mark.parametrize("path", [UNIT, TEMPLATE, SOCKET], ids=lambda path: path.name)
def test_systemd_has_nothing_to_say_against_the_units(tmp_path: Path, path: Path) -> None:
    analyze = tool("systemd-analyze")
    # The program need not be installed for its unit to be right.
    for each in (UNIT, TEMPLATE, SOCKET):
        copy = tmp_path / each.name.replace("@", "@a")
        copy.write_text(re.sub(r"(?m)^ExecStart(Pre)?=\S+", r"ExecStart\1=/bin/true", each.read_text()))
    checked = tmp_path / path.name.replace("@", "@a")
    found = ran([analyze, "verify", "--man=no", checked])
    said = [line for line in found.stderr.splitlines() if checked.name in line]
    assert (found.returncode, said) == (0, [])


@pytest.mark.parametrize("path", [UNIT, TEMPLATE], ids=lambda path: path.name)
def test_the_unit_is_as_closed_as_a_proxy_can_be(path: Path) -> None:
    # Exposure in tenths, 0 to 100: what is left is the network, which is what a proxy is for.
    asked = [tool("systemd-analyze"), "security", "--offline=yes", "--no-pager", "--threshold=15", str(path)]
    succeeded(asked)
