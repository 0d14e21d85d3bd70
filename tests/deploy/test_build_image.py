"""When the image is built anew: if anything differs that it is built of, and not otherwise."""

from pathlib import Path

import pytest

from scripts.build_image import BuildFailed, arguments, digest, stage_extension
from scripts.build_native import Build, key_of
from scripts.image_base import ARCHIVE, MOMENT, SNAPSHOT, NoSnapshot, base_from

MADE = {"BASE": "base", "VERSION": "1"}


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    for name, text in {
        ".dockerignore": "*\n!pyproject.toml\n!proxy\n!requirements/*.txt\n",
        "deploy/image/Dockerfile": "FROM base\n",
        "pyproject.toml": "",
        "proxy/serve.py": "one",
        "proxy/deep/under.py": "two",
        "requirements/image.txt": "",
        "tests/test_it.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    "name", ["proxy/serve.py", "proxy/deep/under.py", "proxy/new.py", "deploy/image/Dockerfile", ".dockerignore"]
)
def test_a_file_of_the_image_that_changes_makes_another_image(sources: Path, name: str) -> None:
    before = digest(MADE, sources)
    with (sources / name).open("a") as file:
        file.write("# more\n")
    assert digest(MADE, sources) != before


def test_what_the_image_does_not_hold_makes_no_other_image(sources: Path) -> None:
    before = digest(MADE, sources)
    (sources / "tests/test_it.py").write_text("changed")
    (sources / "proxy/__pycache__").mkdir()
    (sources / "proxy/__pycache__/serve.cpython-311.pyc").write_text("compiled")
    assert digest(MADE, sources) == before


def test_the_image_gets_the_wheel_of_this_tree_and_no_other(tmp_path: Path) -> None:
    build, folder = Build(tmp_path), tmp_path / "deploy/image/wheels"
    folder.mkdir(parents=True)
    build.crate.mkdir()
    build.locked.parent.mkdir()
    build.locked.write_text("maturin==1\n")
    (folder / "older-1-none.whl").write_text("of an older tree")
    with pytest.raises(BuildFailed, match="make native"):
        stage_extension(build)
    assert list(folder.iterdir()) == []
    kept = build.cache / key_of(build)
    kept.mkdir(parents=True)
    (kept / "extension-1.whl").write_text("of this tree")
    (folder / "older-1-none.whl").write_text("of an older tree")
    assert stage_extension(build) == folder / "extension-1.whl"
    assert [path.read_text() for path in folder.iterdir()] == ["of this tree"]


def test_the_base_is_of_one_moment_and_says_so_when_it_is_not(tmp_path: Path) -> None:
    # An archive that can be reached, without a network.
    release = tmp_path / "dists/trixie/InRelease"
    release.parent.mkdir(parents=True)
    release.write_text("Suite: stable\n")
    there, gone = tmp_path.as_uri(), (tmp_path / "gone").as_uri()
    assert base_from("snapshot", there) == base_from("either", there) == SNAPSHOT
    assert (SNAPSHOT.arguments, MOMENT.lower() in SNAPSHOT.name) == ([ARCHIVE], True)
    with pytest.raises(NoSnapshot, match=r"gone: .*; --base today takes the packages of today instead"):
        base_from("snapshot", gone)
    assert base_from("either", gone) == base_from("today", there)
    assert base_from("today", there).name.endswith("-today")
    assert arguments(SNAPSHOT)["BASE"] != arguments(base_from("today", there))["BASE"]
