"""Seeds 50 to 99 of the whole system with faults; a file a worker."""

import pytest

from tests.simulation.whole.seeds import problems_of


@pytest.mark.parametrize("first", range(50, 100, 10))
def test_ten_seeds_are_well(first: int) -> None:
    stories = problems_of(range(first, first + 10))
    assert not stories, "\n\n".join(stories.values())
