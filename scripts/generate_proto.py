"""Generate protocol/pb/PulsarApi_pb2.py(i) from PulsarApi.proto, or check that the committed ones are.

python -m scripts.generate_proto [--check]
"""

import argparse
import re
import sys
import tempfile
from importlib import resources
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTO = "protocol/pb/PulsarApi.proto"
MODULE = "protocol/pb/PulsarApi_pb2.py"
STUB = "protocol/pb/PulsarApi_pb2.pyi"
STUB_HEAD = """\
# Generated from PulsarApi.proto by scripts/generate_proto.py: do not edit.
# mypy: disable-error-code="type-arg"
"""


def generate(target: Path) -> None:
    """Write the generated modules below `target`; SystemExit if protoc finds a mistake in the .proto."""
    # Here, not above: a check-out without the dev tools can still say which command it lacks.
    try:
        from grpc_tools import protoc  # type: ignore[import-untyped]
    except ImportError:
        sys.exit("grpcio-tools is not installed: set up .venv with the dev requirements")
    # The path from the root becomes the file's name in the descriptor pool, where names must not clash.
    sources = [f"-I{ROOT}", f"-I{resources.files('grpc_tools') / '_proto'}", PROTO]
    if protoc.main(["protoc", f"--python_out={target}", f"--pyi_out={target}", *sources]) != 0:
        sys.exit(f"protoc refused {PROTO}")
    stub = target / STUB
    stub.write_text(STUB_HEAD + widen_enums(stub.read_text()))


def widen_enums(stub: str) -> str:
    """Type the enum fields of a stub as int.

    That is what they are at run time; protoc's stub claims a class of its own that equals no other enum.
    """
    names = re.findall(r"class (\w+)\(int, metaclass=", stub)
    enum = rf"(?:\w+\.)*(?:{'|'.join(sorted(set(names)))})"
    stub = re.sub(rf"^(    \w+): {enum}$", r"\1: int", stub, flags=re.MULTILINE)
    return re.sub(rf"_Union\[{enum}, str\]", "_Union[int, str]", stub)


def outdated() -> list[str]:
    """List the committed files that differ from what the .proto gives now."""
    with tempfile.TemporaryDirectory() as directory:
        generate(Path(directory))
        return [name for name in (MODULE, STUB) if not _equal(ROOT / name, Path(directory) / name)]


def _equal(committed: Path, fresh: Path) -> bool:
    return committed.exists() and committed.read_bytes() == fresh.read_bytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is out of date")
    if not parser.parse_args().check:
        generate(ROOT)
    elif names := outdated():
        sys.exit(f"out of date: {', '.join(names)}; run: python -m scripts.generate_proto")


if __name__ == "__main__":
    main()
