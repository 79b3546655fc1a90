"""Every command that the documentation shows exists, with the options it is given."""

import importlib
import io
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path

import pytest
import typer

from tenure.cli.commands import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "services").glob("*/README.md")])
COMMAND = re.compile(r"^(?:    )?(make|tenure) (.+)$", re.MULTILINE)


def shown() -> Iterator[tuple[str, list[str]]]:
    """Page and words of each command in a block of code."""
    for page in PAGES:
        text = page.read_text()
        fenced = "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
        indented = "\n".join(line for line in text.splitlines() if line.startswith("    "))
        whole = re.sub(r"\\\n\s*", "", f"{fenced}\n{indented}")  # a backslash goes on in the next line
        for match in COMMAND.finditer(whole):
            words = shlex.split(match.group(0), comments=True)
            yield page.name, words[: words.index(">")] if ">" in words else words


def all_shown(program: str) -> list[tuple[str, list[str]]]:
    found = [(page, words[1:]) for page, words in shown() if words[0] == program]
    assert len(found) >= 3, f"the documentation shows {len(found)} commands of {program}: is it still read rightly?"
    return found


def test_make_targets_exist() -> None:
    rules = (ROOT / "Makefile").read_text()
    for page, words in all_shown("make"):
        for target in (word for word in words if "=" not in word):
            assert re.search(rf"^{re.escape(target)}:", rules, re.MULTILINE), f"{page}: make {target}"


def test_tenure_commands_exist_with_their_options() -> None:
    for page, words in all_shown("tenure"):
        try:
            parse(words)
        except typer.TyperException as error:
            pytest.fail(f"{page}: tenure {shlex.join(words)}: {error.format_message()}")


def test_what_make_up_is_given_is_an_up() -> None:
    given = [re.sub("^ARGS=", "", word) for _, words in all_shown("make") if words[0] == "up" for word in words[1:]]
    assert given
    for arguments in given:
        parse(["up", *shlex.split(arguments)])
        for file in re.findall(r"\S+\.yaml", arguments):
            assert (ROOT / file).is_file()


def parse(words: list[str]) -> None:
    """Parse as the command line does, and do nothing. Raises what it raises."""
    if words[0] == "serve":
        offered = options_of_role(words[1])
        unknown = [word for word in words[2:] if word.startswith("--") and word not in offered]
        assert not unknown, f"tenure serve {words[1]} has no {unknown}"
        return
    command = typer.main.get_command(app)
    rest = list(words)
    while rest and (inner := getattr(command, "commands", {}).get(rest[0])) is not None:
        command = inner
        rest = rest[1:]
    assert not hasattr(command, "commands"), f"{words[0]} is no command"
    command.make_context("tenure", rest)


def options_of_role(role: str) -> set[str]:
    """The options in the role's own help."""
    shell = importlib.import_module(f"services.{role}.shell")
    with redirect_stdout(io.StringIO()) as said, suppress(SystemExit):
        shell.main(["--help"])
    return set(re.findall(r"--[a-z-]+", said.getvalue()))
