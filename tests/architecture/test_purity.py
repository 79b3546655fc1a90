"""Deciding is pure: no clock, chance, input, output or environment, and no order taken from a set."""

import ast
import sys
from collections.abc import Iterator

from tests.architecture.sources import Module, dotted, imported, modules, production, pure, say, words

BANNED_MODULES = words(
    """asyncio concurrent http io logging multiprocessing os pathlib platform random secrets signal socket subprocess
    tempfile threading time urllib uuid"""
)
BANNED_CALLS = words("open print input hash id globals eval exec breakpoint")
BANNED_METHODS = words("now today utcnow monotonic getenv")
ORDER_FREE = words("sorted set frozenset len any all sum min max")
"""What may take a set: the result is the same in any order (min and max only without a key)."""


def test_no_clock_chance_or_io() -> None:
    found = []
    for module in pure():
        for line, name in imported(module.tree):
            if top(name) in BANNED_MODULES:
                found.append(f"{module.path}:{line} imports {name}")
        for call in (item for item in ast.walk(module.tree) if isinstance(item, ast.Call)):
            name = dotted(call.func)
            if name in BANNED_CALLS or ("." in name and name.rpartition(".")[2] in BANNED_METHODS):
                found.append(f"{module.path}:{call.lineno} calls {name}()")
    assert not found, say("time, chance and configuration are arguments of what decides", found)


def test_the_domain_needs_only_the_standard_library() -> None:
    for module in modules("tenure"):
        if module.path.startswith("tenure/domain/"):
            for line, name in imported(module.tree):
                known = top(name) in sys.stdlib_module_names or name.startswith("tenure.domain")
                assert known, f"{module.path}:{line} imports {name}"


def test_no_set_is_iterated() -> None:
    found = [
        f"{module.path}:{line} {what}"
        for module in pure()
        for line, what in sorted(iterated_sets(module.tree, set_names(module)))
    ]
    assert not found, say("the order of a set is chance: sort it by something that ends in an id", found)


def test_a_set_that_is_iterated_is_found() -> None:
    text = """
class State:
    waiting: set[str]

def decide(state, jobs: frozenset[str]):
    for job in state.waiting: pass
    for job in jobs: pass
    kept = [job for job in {1, 2}]
    first = next(iter(set(kept)))
    held = {job for job in kept}
    return tuple(held), max(held, key=len)
"""
    module = Module("made_up.py", text, ast.parse(text))
    assert [line for line, _ in sorted(iterated_sets(module.tree, names_of_sets(module.tree)))] == [6, 7, 8, 9, 11, 11]
    harmless = ast.parse("sorted(s); len(s); [x for x in sorted(s)]; {x for x in s}; min(s); any(x for x in s)")
    assert not list(iterated_sets(harmless, {"s"}))


def test_one_code_for_simulation_and_production() -> None:
    for module in production():
        if module.path.startswith("simulator/"):
            continue
        for test in (item.test for item in ast.walk(module.tree) if isinstance(item, ast.If | ast.IfExp)):
            names = {dotted(part) for part in ast.walk(test) if isinstance(part, ast.Name | ast.Attribute)}
            asked = [name for name in names if "simulat" in name.lower()]
            assert not asked, f"{module.path}:{test.lineno} asks {asked}: there is no `if simulate`"


def top(name: str) -> str:
    return name.partition(".")[0]


def set_names(module: Module) -> set[str]:
    """Names that hold sets in the module, and attributes that the role's own state declares as sets."""
    names = names_of_sets(module.tree)
    folder = "/".join(module.path.split("/")[:2])
    for other in pure():
        if other.path == f"{folder}/state.py":
            names |= names_of_sets(other.tree)
    return names


def names_of_sets(tree: ast.AST) -> set[str]:
    """Variables, arguments and attributes that are annotated as a set or assigned one."""
    names: set[str] = set()
    for item in ast.walk(tree):
        if isinstance(item, ast.AnnAssign) and is_set_type(item.annotation):
            names.add(dotted(item.target).rpartition(".")[2])
        elif isinstance(item, ast.arg) and item.annotation is not None and is_set_type(item.annotation):
            names.add(item.arg)
        elif isinstance(item, ast.Assign) and is_set(item.value, set()):
            names |= {target.id for target in item.targets if isinstance(target, ast.Name)}
    return names


def is_set_type(annotation: ast.expr) -> bool:
    outer = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return dotted(outer).rpartition(".")[2] in ("set", "frozenset", "Set", "AbstractSet")


def is_set(value: ast.expr, names: set[str]) -> bool:
    if isinstance(value, ast.Set | ast.SetComp):
        return True
    if isinstance(value, ast.Call):
        return dotted(value.func) in ("set", "frozenset")
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
        return is_set(value.left, names) or is_set(value.right, names)
    return dotted(value).rpartition(".")[2] in names


def iterated_sets(tree: ast.AST, names: set[str]) -> Iterator[tuple[int, str]]:
    """Line and text of every place that takes the members of a set one after another in their own order."""
    harmless = {id(part) for item in ast.walk(tree) for part in order_free_arguments(item)}
    for item in ast.walk(tree):
        if isinstance(item, ast.For | ast.AsyncFor):
            taken = [item.iter]
        elif isinstance(item, ast.ListComp | ast.DictComp | ast.GeneratorExp) and id(item) not in harmless:
            taken = [generator.iter for generator in item.generators]
        elif isinstance(item, ast.Call) and dotted(item.func) in ("list", "tuple", "iter", "enumerate", "dict", "zip"):
            taken = list(item.args)
        elif isinstance(item, ast.Call) and dotted(item.func) in ("min", "max") and item.keywords:
            taken = [*item.args]
        elif isinstance(item, ast.Starred):
            taken = [item.value]
        else:
            continue
        yield from ((value.lineno, ast.unparse(value)) for value in taken if is_set(value, names))


def order_free_arguments(item: ast.AST) -> list[ast.expr]:
    """Generators whose order does not matter to the call around them."""
    if isinstance(item, ast.Call) and dotted(item.func) in ORDER_FREE and not item.keywords:
        return item.args
    return []
