"""What tests of every kind have in common."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The clock of a shared machine says nothing about the code: how long an example takes is no reason to fail.
# CI tries the same examples for the same code, so that what it says is about the change; people find new ones.
settings.register_profile(
    "shared machine", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("ci", settings.get_profile("shared machine"), derandomize=True, database=None)
settings.register_profile("fuzz", settings.get_profile("shared machine"), max_examples=500)  # `make fuzz`
settings.load_profile("ci" if os.environ.get("CI") else "shared machine")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The material beside the project: traces, scenarios, captures. Tests that need it are skipped without it."""
    folder = Path(__file__).parents[2] / "shared"
    if not (folder / "design.md").is_file():
        pytest.skip("needs the folder `shared` beside the project")
    return folder
