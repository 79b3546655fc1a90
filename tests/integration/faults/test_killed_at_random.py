"""kill -9 of every process at random moments under load: nothing is lost, nothing doubled, no contract broken.

S45 (a restart admits again what was over), S46 and S49 (what was held is wrong after a restart), S57 (two jobs own one
GPU), S59 (a run that cannot be owned again is killed, or owned twice), S60 (an agent holds what nobody knows of).
"""

import random
from pathlib import Path

import pytest

from tests.integration.faults.aftermath import check_aftermath
from tests.integration.faults.lab import lab, shuffled

pytestmark = pytest.mark.timeout(300)  # a third of a minute, but for a machine that is busy with other things

SEED = 6


def test_each_process_is_killed_at_random_moments_under_load(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with lab(tmp_path) as each:
        with each.load(seed=SEED) as load:
            load.more(5)
            for victim in shuffled(each.victims, chance):
                load.more(chance.randrange(1, 12))
                each.kill(victim)
                each.again(victim)
        recorded = check_aftermath(each, load)
        assert len(load.acknowledged) > 40 and len(recorded) > 400
