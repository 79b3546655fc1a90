"""The role's command line."""

from pathlib import Path

import pytest

from services.clickhouse.options import default_memory_bytes, parse_options
from tenure.domain.refusal import Refusal


def test_only_data_is_needed():
    options = parse_options(["--data", "/d"])
    assert (options.data, options.port, options.token_file) == (Path("/d"), 0, Path("/d/token"))
    assert options.fsync
    assert options.memory_bytes == default_memory_bytes()
    assert 512 << 20 <= options.memory_bytes <= 4 << 30


def test_sizes_and_switches():
    options = parse_options(["--data", "/d", "--memory", "1.5 GiB", "--body-max", "2mib", "--no-fsync"])
    assert (options.memory_bytes, options.body_bytes_max, options.fsync) == (3 << 29, 2 << 20, False)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--port", "70000"], "--port"),
        (["--memory", "lots"], "--memory"),
        (["--memory", "1MiB"], "--memory"),
        (["--body-max", "1 XB"], "--body-max"),
        (["--connections", "0"], "--connections"),
        (["--statement-seconds", "0"], "--statement-seconds"),
    ],
)
def test_nonsense_is_refused_by_name(arguments, named):
    with pytest.raises(Refusal, match=named):
        parse_options(["--data", "/d", *arguments])
