"""Each policy beside a slow one on few random states; on many in files of their own."""

import pytest

from few_examples import drawing_few
from robustness.prove.binpack import BINPACK
from robustness.prove.engine import Trial, among_many, run
from robustness.prove.locality import LOCALITY
from robustness.prove.several_shares import SEVERAL_SHARES
from robustness.prove.topology import TOPOLOGY

SHORT = (LOCALITY, BINPACK, TOPOLOGY)


@pytest.mark.parametrize(
    "trial",
    [*SHORT, *map(among_many, SHORT), *SEVERAL_SHARES],
    ids=lambda trial: trial.name,
)
def test_on_a_few_random_states_it_answers_as_the_slow_one(trial: Trial) -> None:
    states = 500 if drawing_few() else 2_000
    *_, seen = run(trial, states, seed=7)
    assert seen.states >= states
