"""Lists on a real, small disk, where this machine lets a test make one."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Final

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


def test_a_small_disk_that_is_full_says_so_and_is_free_again_when_the_list_is_over(tmp_path: Path) -> None:
    unshare, _, _ = tools("unshare", "mount", "mkfs.ext4")
    if os.geteuid() != 0:
        unusable("mount", "mount needs root")
    image, mounted = tmp_path / "image", tmp_path / "mounted"
    image.touch()
    os.truncate(image, 24 * MIB)
    mounted.mkdir()
    command = [unshare, "--mount", sys.executable, "-c", textwrap.dedent(_SMALL_DISK), str(image), str(mounted)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode == _NOT_HERE or "unshare failed" in done.stderr:
        unusable("mount", "this machine does not let a test use mount")
    assert done.returncode == 0, done.stderr
    said = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert said["error"] == ["28"], "ENOSPC"
    written, free = map(int, said["written"])
    assert free // 2 < written <= free
    assert said["leaves"] == ["False"], "the tenth that stays free would have been used"
    assert said["back"] == ["True"]
    assert said["free"] == ["True", "['lost+found']"]
