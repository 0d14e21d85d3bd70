"""Checks for `check-config` beyond the configuration itself: files of keys, passwords and tokens, the native engine.

Rule: the checks build the same parts as `serve`, so that both report the same faults. Nothing is started, and no issuer
or broker is contacted. `proxy.net.tls.files.check` checks certificates.
"""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from proxy.app.identities import missing_secret
from proxy.app.processors import usable_processors
from proxy.auth.failures import SettingFault
from proxy.auth.providers.registry import build_authenticator
from proxy.config.config import Config, ConfigError
from proxy.config.core import Core
from proxy.config.sources import COMMAND_LINE
from proxy.core.counters import Counters
from proxy.core.log import open_log
from proxy.core.loop_budget import LoopBudget
from proxy.core.native import native
from proxy.net.spill.directory import check_path
from proxy.relay.threads import choose_threads
from proxy.telemetry.events.requirements import MISSING_CLIENT, client_missing
from proxy.web.admin.access import read_token


@dataclass(frozen=True, slots=True)
class StartFault:
    """A fault: the place of a key, the key, and the problem, without any part of a secret."""

    place: str
    key: str
    problem: str

    def __str__(self) -> str:
        return f"{self.place}: {self.key}: {self.problem}"


def start_faults(config: Config) -> list[StartFault]:
    """Return all faults with which `serve` would not start, or not work; reads files."""
    found = dict.fromkeys((fault.key, fault.problem) for fault in _faults(config))
    places = {key.name: config.place(key) for key in config.keys()}  # noqa: SIM118
    return [StartFault(places.get(key, COMMAND_LINE), key, problem) for key, problem in found]


def _faults(config: Config) -> Iterator[SettingFault]:
    if config.authentication_enabled:
        yield from _of_providers(config)
    if (missing := missing_secret(config)) is not None:
        yield missing
    if config.admin_api_address:
        try:
            read_token(config.admin_api_token_file_path)
        except SettingFault as fault:
            yield fault
    if config.topic_list_spill_directory:
        try:
            check_path(config.topic_list_spill_directory)
        except SettingFault as fault:
            yield fault
    try:
        choose_threads(config, native(), usable_processors())
    except ConfigError as error:
        yield from (SettingFault(each.key, f"got {each.got}, expected {each.expected}") for each in error.problems)
    yield from _of_events(config)


def _of_events(config: Config) -> Iterator[SettingFault]:
    """Yield faults of the event log; `serve` starts with an unwritable directory, and keeps trying."""
    if config.event_log_topic and client_missing():
        yield SettingFault(Config.event_log_topic.name, MISSING_CLIENT)
    directory = config.event_log_directory
    if not directory:
        return
    try:
        there = next(path for path in (Path(directory), *Path(directory).parents) if path.exists())
    except OSError as error:
        problem = f"got {directory[:200]!r} ({(error.strerror or str(error)).lower()}), expected a directory"
        yield SettingFault(Config.event_log_directory.name, problem)
        return
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        problem = f"got {directory!r}, expected a directory that this user may write to"
        yield SettingFault(Config.event_log_directory.name, problem)


def _of_providers(config: Config) -> Iterator[SettingFault]:
    """Yield the faults of each provider, built alone: building all would report only the first fault."""
    loop = asyncio.new_event_loop()
    core = Core(loop, config, Counters(), open_log("error", "json"), LoopBudget(loop, loop.time))
    alone: list[tuple[str, ...]] = [(name,) for name in config.authentication_providers] or [()]
    try:
        for providers in alone:
            try:
                build_authenticator(providers, core)
            except SettingFault as fault:
                yield fault
    finally:
        loop.close()
