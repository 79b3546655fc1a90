"""What tests of every kind have in common."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The clock of a shared machine says nothing about the code: how long an example takes is no reason to fail.
settings.register_profile(
    "shared machine", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared machine")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The material beside the project: traces, scenarios, captures. Tests that need it are skipped without it."""
    folder = Path(__file__).parents[2] / "shared"
    if not (folder / "design.md").is_file():
        pytest.skip("needs the folder `shared` beside the project")
    return folder
