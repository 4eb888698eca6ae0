"""The measuring tools of the other tests, measured."""

import numpy as np
import pytest

from reference import frequency_p_value, transition_p_value, upper_tail


@pytest.mark.parametrize(
    ("statistic", "freedom", "chance"),
    [(3.841459, 1, 0.05), (18.307038, 10, 0.05), (10.827566, 1, 0.001), (67.504807, 50, 0.05), (34.764252, 50, 0.95)],
)
def test_the_upper_tail_has_the_values_of_printed_tables(statistic, freedom, chance):
    assert upper_tail(statistic, freedom) == pytest.approx(chance, rel=1e-5)


def test_p_values_of_draws_from_the_true_chances_are_uniform():
    """The largest gap to the uniform distribution of 100 values stays below 0.2 for 99.9 % of seeds."""
    random = np.random.default_rng(0)
    chances = np.array([0.5, 0.2, 0.2, 0.09, 0.01])
    values = sorted(frequency_p_value(random.multinomial(400, chances), chances) for _ in range(100))
    assert np.abs(np.array(values) - np.linspace(0, 1, 100)).max() < 0.2


def test_transition_counts_of_a_markov_chain_pass_and_those_of_another_fail():
    random = np.random.default_rng(1)
    true, other = random.dirichlet(np.ones(8) * 3, size=(2, 8))
    tokens = [0]
    for _ in range(4000):
        tokens.append(int(random.choice(8, p=true[tokens[-1]])))
    assert transition_p_value(tokens, true) > 1e-3
    assert transition_p_value(tokens, other) < 1e-9


def test_an_impossible_token_gives_no_chance_at_all():
    matrix = np.array([[0.5, 0.5, 0.0]] * 3)
    assert transition_p_value([0, 1, 2, 0], matrix) == 0.0
