"""The stub beside the crate says what the extension takes: mypy never sees the classes themselves."""

import ast
import inspect
from pathlib import Path

import pytest

from tests.support.native import offered

STUB = Path(__file__).parents[2] / "native" / "pulsar_proxy_native.pyi"
CLASSES = [node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ClassDef)]


def is_property(method: ast.FunctionDef) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "property" for each in method.decorator_list)


@pytest.mark.parametrize("described", CLASSES, ids=lambda node: node.name)
def test_methods_and_their_parameters_are_those_of_the_extension(described: ast.ClassDef) -> None:
    found = offered(described.name)
    for method in (node for node in described.body if isinstance(node, ast.FunctionDef)):
        own = found if method.name == "__init__" else getattr(found, method.name)
        if is_property(method):
            assert not callable(own), method.name
            continue
        asked = method.args
        parameters = {name: each for name, each in inspect.signature(own).parameters.items() if name != "self"}
        names = [each.arg for each in (*asked.args, *asked.kwonlyargs) if each.arg != "self"]
        assert list(parameters) == names, method.name
        defaults = [each.default is not each.empty for each in parameters.values()]
        positional = len(names) - len(asked.kwonlyargs)
        given = [number >= positional - len(asked.defaults) for number in range(positional)]
        assert defaults == given + [each is not None for each in asked.kw_defaults], method.name
