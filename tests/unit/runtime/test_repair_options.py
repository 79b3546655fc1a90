"""What an operator may write about the repair plug, and what is said of mistakes."""

from pathlib import Path

import pytest

from tenure.domain.refusal import Refusal
from tenure.domain.units import HOUR
from tenure.runtime.repair_options import build_repair_options


def test_without_a_section_nothing_is_repaired() -> None:
    assert not build_repair_options({}).there


def test_a_command_as_words_or_as_a_list() -> None:
    options = build_repair_options({"command": "mend --now 'a b'", "time_limit": "1h", "attempts": "2", "test": "no"})
    assert (
        options.command
        == ("mend", "--now", "a b")
        == build_repair_options({"command": ["mend", "--now", "a b"]}).command
    )
    assert (options.time_limit_ms, options.attempts, options.there, options.test) == (HOUR, 2, True, False)


def test_a_webhook_with_its_secret(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("abc\n")
    options = build_repair_options({"webhook": "https://ops/mend", "secret_file": str(tmp_path / "secret")})
    assert options.secret == b"abc" and options.there and options.test


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"comand": "x"}, "command"),
        ({"command": "x", "webhook": "https://a"}, "both"),
        ({"command": "x 'y"}, "repair.command"),
        ({"webhook": "ops/mend"}, "no web address"),
        ({"webhook": "https://ops"}, "repair.secret_file"),
        ({"webhook": "https://ops", "secret_file": "/no/such/file"}, "cannot be read"),
        ({"webhook": "https://ops", "secret_file": "/dev/null"}, "is empty"),
        ({"command": "x", "time_limit": "0"}, "repair.time_limit"),
        ({"command": "x", "attempts": "none"}, "repair.attempts"),
        ({"command": "x", "test": "maybe"}, "repair.test"),
    ],
)
def test_a_mistake_names_its_key(values: dict[str, object], said: str) -> None:
    with pytest.raises(Refusal, match=said):
        build_repair_options(values)
