"""YAML files from people: duplicate keys, aliases that contain themselves and absurd depth are refused, not read."""

from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from tenure.domain.refusal import Refusal

SIZE_MAX = 16 * 1024 * 1024
DEPTH_MAX = 64


def load_yaml(path: Path) -> object:
    """The document in `path`, as plain dicts, lists and scalars. Raises `Refusal` naming the file and the line."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Refusal(
            field=str(path), problem=error.strerror or "cannot be read", fix="name a readable file"
        ) from error
    return parse_yaml(data, name=str(path))


def parse_yaml(data: bytes, *, name: str) -> object:
    """The document in `data`; `name` is what errors call it. Raises `Refusal`."""
    if len(data) > SIZE_MAX:
        raise Refusal(field=name, problem=f"{len(data)} bytes", fix=f"use at most {SIZE_MAX}")
    try:
        text = data.decode()
        document: object = YAML(typ="safe", pure=True).load(text)
    except UnicodeDecodeError as error:
        raise Refusal(field=name, problem=f"not UTF-8 at byte {error.start}", fix="save it as UTF-8") from error
    except RecursionError as error:
        raise Refusal(field=name, problem="nested too deeply", fix=f"use at most {DEPTH_MAX} levels") from error
    except DuplicateKeyError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        problem = str(error.problem).split(" with value")[0]
        raise Refusal(field=f"{name}:{line}", problem=problem, fix="give each key once") from error
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise Refusal(field=f"{name}:{line}", problem=f"not YAML: {error.problem}", fix="mend the syntax") from error
    except (YAMLError, ValueError) as error:
        raise Refusal(
            field=name, problem=f"not YAML: {' '.join(str(error).split())[:120]}", fix="mend the syntax"
        ) from error
    _check_depth(document, name=name)
    return document


def _check_depth(document: object, *, name: str) -> None:
    """Walk without recursion; an alias inside itself never ends, so it runs into the limit too."""
    level: list[object] = [document]
    for _ in range(DEPTH_MAX):
        seen: dict[int, object] = {}
        for item in level:
            children = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
            seen.update({id(child): child for child in children if isinstance(child, dict | list)})
        level = list(seen.values())
        if not level:
            return
    raise Refusal(field=name, problem="nested too deeply or in a cycle", fix=f"use at most {DEPTH_MAX} levels")
