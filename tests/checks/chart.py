"""Renders deploy/helm/tenure without helm: the small part of its language that the chart keeps to.

    {{ $.Values.a.b }}   $.Release.Name, $.Release.Namespace, $name.b        | toYaml   | nindent N   | quote
    {{- if X }} ... {{- end }}    {{- range $key, $value := X }} ... {{- end }}    in order of keys

Anything else fails. `-` takes the blanks before it away, as in helm.
"""

import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "tenure"
ACTION = re.compile(r"(\s*\{\{-|\{\{)\s*(.*?)\s*\}\}", re.DOTALL)
RANGE = re.compile(r"range \$(\w+), \$(\w+) := (.+)")

Scope = Mapping[str, Any]


def load(path: Path) -> Any:
    """A YAML file."""
    return YAML(typ="safe").load(path)


def render(values: Mapping[str, Any], *, release: str = "tenure", namespace: str = "tenure") -> list[dict[str, Any]]:
    """Every object that the chart makes of these values."""
    scope = {"": {"Values": values, "Release": {"Name": release, "Namespace": namespace}}}
    texts = [fill(path.read_text(), scope) for path in sorted((CHART / "templates").glob("*.yaml"))]
    objects = [each for text in texts for each in YAML(typ="safe").load_all(text)]
    return [each for each in objects if each is not None]


def fill(text: str, scope: Scope) -> str:
    """One template's text."""
    words = _words(text)
    made = _block(words, scope)
    assert next(words, None) is None, "an end too many"
    return made


def _words(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    for match in ACTION.finditer(text):
        yield "text", text[at : match.start()] + ("" if match[1].endswith("-") else match[1][:-2])
        yield "action", match[2]
        at = match.end()
    yield "text", text[at:]


def _block(words: Iterator[tuple[str, str]], scope: Scope) -> str:
    made = []
    for kind, word in words:
        if kind == "text":
            made.append(word)
        elif word == "end":
            break
        elif word.startswith("if "):
            inner = _inner(words)
            made.append(_block(iter(inner), scope) if _value(word[3:], scope) else "")
        elif match := RANGE.fullmatch(word):
            inner, over = _inner(words), _value(match[3], scope)
            for key in sorted(over):
                made.append(_block(iter(inner), {**scope, match[1]: key, match[2]: over[key]}))
        else:
            made.append(_piped(word, scope))
    return "".join(made)


def _inner(words: Iterator[tuple[str, str]]) -> list[tuple[str, str]]:
    """What stands before the end of this block."""
    found, depth = [], 1
    for kind, word in words:
        depth += kind == "action" and word.startswith(("if ", "range "))
        depth -= kind == "action" and word == "end"
        if depth == 0:
            return found
        found.append((kind, word))
    raise AssertionError("an end is missing")


def _piped(word: str, scope: Scope) -> str:
    path, *functions = (part.strip() for part in word.split("|"))
    value = _value(path, scope)
    for function in functions:
        if function == "toYaml":
            stream = io.StringIO()
            YAML().dump(value, stream)
            value = stream.getvalue().rstrip("\n")
        elif match := re.fullmatch(r"nindent (\d+)", function):
            value = "".join(f"\n{' ' * int(match[1])}{line}" for line in str(value).splitlines())
        else:
            assert function == "quote", f"the chart keeps to less than {function!r}"
            value = f'"{value}"'
    assert isinstance(value, str | int), f"{word!r} is no text"
    return str(value)


def _value(path: str, scope: Scope) -> Any:
    assert re.fullmatch(r"\$\w*(\.\w+)*", path), f"the chart keeps to less than {path!r}"
    name, *keys = path.removeprefix("$").split(".")
    value = scope[name]
    for key in keys:
        value = value[key]
    return value
