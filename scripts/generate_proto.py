"""Generate protocol/pb/PulsarApi_pb2.py(i) from PulsarApi.proto."""

import re
import sys
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from scripts.generated import ROOT

PROTO = "protocol/pb/PulsarApi.proto"
MODULE = "protocol/pb/PulsarApi_pb2.py"
STUB = "protocol/pb/PulsarApi_pb2.pyi"
STUB_HEAD = """\
# Generated from PulsarApi.proto by scripts/generate_proto.py: do not edit.
# mypy: disable-error-code="type-arg"
"""


def files() -> Mapping[Path, str]:
    """Return the generated module and its stub; raises SystemExit if protoc finds a mistake in the .proto."""
    # Here, not above: a check-out without the dev tools can still say which command it lacks.
    try:
        from grpc_tools import protoc  # type: ignore[import-untyped]
    except ImportError:
        sys.exit("grpcio-tools is not installed: set up .venv with the dev requirements")
    # The path from the root becomes the file's name in the descriptor pool, where names must not clash.
    sources = [f"-I{ROOT}", f"-I{resources.files('grpc_tools') / '_proto'}", PROTO]
    with tempfile.TemporaryDirectory() as target:
        if protoc.main(["protoc", f"--python_out={target}", f"--pyi_out={target}", *sources]) != 0:
            sys.exit(f"protoc refused {PROTO}")
        module, stub = (Path(target, name).read_text(encoding="utf-8") for name in (MODULE, STUB))
    return {ROOT / MODULE: module, ROOT / STUB: STUB_HEAD + widen_enums(stub)}


def widen_enums(stub: str) -> str:
    """Return a stub with enum fields typed as int, which they are at run time.

    protoc's stub declares a class for each enum, whose values never equal those of another enum.
    """
    names = re.findall(r"class (\w+)\(int, metaclass=", stub)
    enum = rf"(?:\w+\.)*(?:{'|'.join(sorted(set(names)))})"
    stub = re.sub(rf"^(    \w+): {enum}$", r"\1: int", stub, flags=re.MULTILINE)
    return re.sub(rf"_Union\[{enum}, str\]", "_Union[int, str]", stub)
