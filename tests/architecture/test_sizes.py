"""Sizes: what has to be read at once fits on a screen."""

import ast
from collections.abc import Iterator

from tests.architecture.exceptions import FUNCTIONS, MODULES
from tests.architecture.sources import Module, modules, say

FUNCTION, MODULE, TEST_MODULE, DECIDER = 60, 400, 600, 150
OPTIONS_OF_A_ROLE = 12


def limit(path: str) -> int:
    if path.endswith("/decider.py"):
        return DECIDER
    return TEST_MODULE if path.startswith("tests/") else MODULE


def functions(module: Module) -> Iterator[tuple[str, int]]:
    for item in ast.walk(module.tree):
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            assert item.end_lineno is not None
            yield f"{module.path}:{item.name}", item.end_lineno - item.lineno + 1


def test_sizes() -> None:
    found = []
    for module in modules():
        allowed, _ = MODULES.get(module.path, (limit(module.path), ""))
        if module.lines > allowed:
            found.append(f"{module.path} has {module.lines} lines, {allowed} are allowed")
        for name, lines in functions(module):
            allowed, _ = FUNCTIONS.get(name, (FUNCTION, ""))
            if lines > allowed:
                found.append(f"{name} has {lines} lines, {allowed} are allowed")
    assert not found, say("split them", found)


def test_exceptions_are_needed() -> None:
    sizes = {module.path: module.lines for module in modules()}
    for path, (allowed, why) in MODULES.items():
        assert why
        assert limit(path) < sizes.get(path, 0) <= allowed, f"{path} needs no exception any more"
    lengths = {name: lines for module in modules() for name, lines in functions(module)}
    for name, (allowed, why) in FUNCTIONS.items():
        assert why
        assert FUNCTION < lengths.get(name, 0) <= allowed, f"{name} needs no exception any more"


def test_a_role_has_a_dozen_options_at_most() -> None:
    options: dict[str, int] = {}
    for module in modules("services"):
        calls = [item for item in ast.walk(module.tree) if isinstance(item, ast.Call)]
        own = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"]
        role = "/".join(module.path.split("/")[:2])
        options[role] = options.get(role, 0) + len(own)
    too_many = {role: count for role, count in options.items() if count > OPTIONS_OF_A_ROLE}
    assert not too_many
    assert any(options.values()), "no option was found: the test looks for the wrong call"
