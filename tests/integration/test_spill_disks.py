"""Lists on a real, small disk, and what they cost of the page cache; where this machine lets a test make both."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.sockets.local_disk import local_disk
from tests.support.tools import tools, unusable

MIB: Final = 1024 * 1024
_NOT_HERE: Final = 77

# 24 MiB of file system, in a mount namespace of its own: nothing of it is left when the process has ended.
_SMALL_DISK: Final = """
    import os, subprocess, sys
    image, mounted = sys.argv[1:]
    try:
        subprocess.run(["mount", "--make-rprivate", "/"], check=True, capture_output=True)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", image, mounted], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        sys.exit(77)
    os.chmod(mounted, 0o700)
    from proxy.net.spill.directory import open_directory
    from proxy.net.spill.space import leaves_enough
    disk = open_directory(mounted)
    room = disk.room()
    piece = memoryview(bytearray(os.urandom(1024 * 1024)))
    fd, written = disk.create(), 0
    try:
        while True:
            disk.write(fd, piece, written)
            written += len(piece)
    except OSError as error:
        print("error", error.errno)
    print("written", written, room.free)
    print("leaves", leaves_enough(*disk.room(), 0))
    print("back", disk.read(fd, written - len(piece), len(piece)) == bytes(piece))
    disk.close(fd)
    print("free", disk.room().free >= room.free - 1024 * 1024, os.listdir(mounted))
    subprocess.run(["umount", "-l", mounted])
"""

_PAGE_CACHE: Final = """
    import os, sys, threading
    path = sys.argv[1]
    lines = dict(line.strip().split(":", 2)[1:] for line in open("/proc/self/cgroup"))
    if "memory" in lines:
        group = "/sys/fs/cgroup/memory" + lines["memory"]
        names = ("cache",)
    else:
        group = "/sys/fs/cgroup" + lines.get("", "/none")
        names = ("file",)
    own = f"{group}/pulsar-proxy-test-{os.getpid()}"
    try:
        os.mkdir(own)
    except OSError:
        sys.exit(77)
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        os.rmdir(own)
        sys.exit(os.waitstatus_to_exitcode(status))
    try:
        with open(own + "/cgroup.procs", "w") as procs:
            procs.write(str(os.getpid()))
        open(own + "/memory.stat").close()
    except OSError:
        os._exit(77)
    from proxy.net.spill.directory import open_directory
    disk, peak = open_directory(path), [0]
    piece = memoryview(bytearray(os.urandom(1024 * 1024)))

    def look():
        with open(own + "/memory.stat") as stat:
            found = dict(line.split() for line in stat)
        peak[0] = max(peak[0], sum(int(found[name]) for name in names))

    def work():
        for _ in range(40):
            fd = disk.create()
            for step in range(3):
                disk.write(fd, piece, step * len(piece))
                look()
            for position in range(0, 3 * len(piece) - 90_000, 85_000):
                disk.read(fd, position, 85_000)
            look()
            disk.close(fd)

    threads = [threading.Thread(target=work) for _ in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    print("peak", peak[0])
    sys.stdout.flush()
    os._exit(0)
"""


def run(script: str, *arguments: object, needs: str, before: Sequence[str] = ()) -> dict[str, list[str]]:
    """Run a script in a process of its own; give what it printed by its first words.

    `needs` is the tool of the table that this machine may not let a test use.
    """
    command = [*before, sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode == _NOT_HERE or (before and "unshare failed" in done.stderr):
        unusable(needs, f"this machine does not let a test use {needs}")
    assert done.returncode == 0, done.stderr
    return {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}


def test_a_small_disk_that_is_full_says_so_and_is_free_again_when_the_list_is_over(tmp_path: Path) -> None:
    unshare, _, _ = tools("unshare", "mount", "mkfs.ext4")
    if os.geteuid() != 0:
        unusable("mount", "mount needs root")
    image, mounted = tmp_path / "image", tmp_path / "mounted"
    image.touch()
    os.truncate(image, 24 * MIB)
    mounted.mkdir()
    said = run(_SMALL_DISK, image, mounted, needs="mount", before=[unshare, "--mount"])
    assert said["error"] == ["28"], "ENOSPC"
    written, free = map(int, said["written"])
    assert free // 2 < written <= free
    assert said["leaves"] == ["False"], "the tenth that stays free would have been used"
    assert said["back"] == ["True"]
    assert said["free"] == ["True", "['lost+found']"]


def test_lists_on_disk_leave_nothing_in_the_page_cache(tmp_path: Path) -> None:
    with local_disk(tmp_path) as lists:
        said = run(_PAGE_CACHE, lists, needs="memory cgroup")
    assert int(said["peak"][0]) <= 16 * MIB, "of 360 MiB written and read"
