"""Where things lie: roles, tests, and what is in no file."""

import ast
import re

from tests.architecture.exceptions import SLEEPS
from tests.architecture.sources import ROOT, modules, say, tracked, words

HANDS_ONLY = frozenset({"clickhouse", "console", "journal"})
"""Roles that decide nothing: one owns a database, one shows pages, one copies the log into the database."""
KINDS_OF_TEST = words("architecture bench contract e2e integration property scenario simulation unit")
"""docs/where-to-change.md says what belongs where. `checks` holds what tests of several kinds ask of a log."""
NO_NAME = re.compile(r"(utils?|common|helpers?|managers?|misc|stuff)(\.py)?$")
MARKS = re.compile("|".join(("TO" + "DO", "FIX" + "ME", "X" * 3, "NotImplemented" + "Error")))
HOSTS = re.compile(
    "|".join(("pypi" + r"\.org", "python" + "hosted", "npm" + "js", r"debian\." + "org", "docker" + r"\.io"))
)
MACHINE = re.compile(r"(?<![\w.:])/(work|farm|root|home/\w+|opt/(wheels|pypi)|tmp/w)/")
BINARY = (".png", ".gz", ".ico", ".woff2", ".snapshot")


def roles() -> list[str]:
    return sorted({name.split("/")[1] for name in tracked() if re.match(r"services/\w+/__init__\.py$", name)})


def test_every_role_has_the_same_shape() -> None:
    missing = []
    for role in roles():
        wanted = ["README.md", "shell.py"]
        if role not in HANDS_ONLY:
            wanted += ["decider.py", "state.py"]
        missing += [f"services/{role}/{name}" for name in wanted if not (ROOT / "services" / role / name).is_file()]
    assert not missing, say("a role's folder has README.md, shell.py, and decider.py with state.py", missing)
    assert set(roles()) >= HANDS_ONLY


def test_a_shell_is_an_entry_point() -> None:
    found = []
    for module in modules("services"):
        if re.match(r"services/\w+/shell\.py$", module.path):
            names = {item.name for item in module.tree.body if isinstance(item, ast.FunctionDef)}
            found += [module.path] if "main" not in names else []
    assert not found, say("`tenure serve ROLE` calls main() of the role's shell", found)


def test_every_folder_of_code_is_a_package() -> None:
    folders = {module.path.rpartition("/")[0] for module in modules("tenure", "services", "simulator", "tests")}
    missing = [f"{folder}/__init__.py" for folder in sorted(folders) if not (ROOT / folder / "__init__.py").is_file()]
    assert not missing, say("imports are absolute from the root", missing)


def test_a_name_says_what_is_inside() -> None:
    parts = {(name, part) for name in tracked() for part in name.split("/")}
    found = sorted(name for name, part in parts if NO_NAME.fullmatch(part))
    assert not found, say("a name that fits everything says nothing", found)


def test_tests_lie_where_they_are_looked_for() -> None:
    found = []
    for module in modules("tests"):
        path = module.path.split("/")
        kind = path[1] if len(path) > 2 else ""
        if kind not in KINDS_OF_TEST | {"checks"} and path[-1] not in ("conftest.py", "__init__.py"):
            found.append(f"{module.path} is in no folder of {', '.join(sorted(KINDS_OF_TEST))}")
        tests = [name for name in definitions(module.tree) if name.startswith(("test_", "Test"))]
        named = path[-1].startswith("test_")
        if tests and not named:
            found.append(f"{module.path} has tests that pytest does not look for: name it test_...")
        if named and not tests:
            found.append(f"{module.path} has no test")
    for part in sorted({name.split("/")[2] for name in tracked() if re.match(r"tests/unit/\w+/", name)}):
        places = (ROOT / "services" / part, ROOT / "tenure" / part, ROOT / part)
        if not any(place.is_dir() for place in places):
            found.append(f"tests/unit/{part} is named after no role or package")
    assert not found, say("tests", found)


def test_no_test_sleeps() -> None:
    """Waiting is looking again until a condition holds; `sleep(0)` only lets others have their turn."""
    sleeping = {module.path: hopeful_sleeps(module.tree) for module in modules("tests")}
    sleeping = {path: lines for path, lines in sleeping.items() if not path.startswith("tests/bench/")}
    found = [f"{path}:{line}" for path, lines in sleeping.items() if path not in SLEEPS for line in lines]
    assert not found, say("sleeps and hopes; wait for the condition itself", found)
    unneeded = [path for path in SLEEPS if not sleeping.get(path)]
    assert not unneeded, say("do not sleep any more: take them out of the exceptions", unneeded)


def test_a_hopeful_sleep_is_found() -> None:
    text = """
def test_it():
    while not ready():
        time.sleep(0.1)
    time.sleep(0.1)
    while True:
        sleep(1)
    while True:
        assert time.monotonic() < deadline
        sleep(1)
    await asyncio.sleep(0)
"""
    assert hopeful_sleeps(ast.parse(text)) == [5, 7]


def test_no_test_is_expected_to_fail() -> None:
    found = [
        f"{module.path}" for module in modules("tests") if re.search(r"mark\.(xfail|skip)\b|\bxfail\(", module.text)
    ]
    assert not [name for name in found if name != "tests/architecture/test_layout.py"], say("mend or delete", found)


def test_nothing_is_unfinished_or_bound_to_a_machine() -> None:
    found = []
    for name in tracked():
        if name.endswith(BINARY):
            continue
        for number, line in enumerate((ROOT / name).read_text().splitlines(), start=1):
            for what, pattern in (("unfinished", MARKS), ("a registry's host", HOSTS), ("a machine's path", MACHINE)):
                if pattern.search(line):
                    found.append(f"{name}:{number} {what}: {line.strip()[:100]}")
    assert not found, say("not to be committed", found)


def definitions(tree: ast.Module) -> list[str]:
    """The names of the functions and classes at the top of a module."""
    return [item.name for item in tree.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]


def ends(loop: ast.While) -> bool:
    """Whether the loop asks for something: in its condition, or by a way out."""
    ways_out = ast.Return | ast.Break | ast.Raise | ast.Assert
    return not isinstance(loop.test, ast.Constant) or any(isinstance(item, ways_out) for item in ast.walk(loop))


def hopeful_sleeps(tree: ast.AST, *, asked: bool = False) -> list[int]:
    """Lines of calls of sleep that are in no loop over a condition (`asked`: this tree is in one)."""
    found = []
    for item in ast.iter_child_nodes(tree):
        if isinstance(item, ast.Call):
            name = item.func.attr if isinstance(item.func, ast.Attribute) else getattr(item.func, "id", "")
            turn = bool(item.args) and isinstance(item.args[0], ast.Constant) and item.args[0].value == 0
            if name == "sleep" and not turn and not asked:
                found.append(item.lineno)
        loop = isinstance(item, ast.While) and ends(item)
        scope = isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
        found += hopeful_sleeps(item, asked=loop or (asked and not scope))
    return found
