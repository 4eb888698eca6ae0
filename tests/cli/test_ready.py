"""What a command does before it loads: refuse, warn, or go on, with no weight read."""

import pytest

from dflash2_mlx.memory.machine import probe
from machines import FakeSystem, linux


@pytest.fixture
def memory(monkeypatch):
    """Gives the machine so many bytes of memory."""

    def give(count):
        class Small(FakeSystem):
            def memory_bytes(self):
                return count

        facts = {"system": "Linux", "arch": "x86_64", "version": "6.8", "gpu": False}
        monkeypatch.setattr("dflash2_mlx.memory.verdict.probe", lambda: probe(Small(**facts)))

    return give


@pytest.fixture
def unread(monkeypatch):
    monkeypatch.setattr("mlx.core.load", lambda *_: pytest.fail("weights were read"))


@pytest.mark.parametrize(
    "command", [("generate", "hello"), ("chat",), ("serve",), ("bench", "run"), ("bench", "check")], ids=" ".join
)
def test_a_pair_that_does_not_fit_is_refused_before_a_weight_is_read(cli, stored, memory, unread, command):
    memory(1_000_000)
    outcome = cli(*command, "--model", stored[0], "--draft", stored[1])
    assert outcome.code == 1 and outcome.out == "" and outcome.err.count("\n") == 1
    assert "does not fit this machine" in outcome.err and "DFLASH2_SKIP_FIT=1" in outcome.err


def test_the_override_loads_it_all_the_same(cli, stored, memory, monkeypatch):
    memory(1_000_000)
    monkeypatch.setenv("DFLASH2_SKIP_FIT", "1")
    assert cli("generate", "-m", stored[0], "--draft", stored[1], "-n", 2, "hello").code == 0


def test_a_tight_pair_answers_after_one_line_of_warning(cli, stored, memory):
    from dflash2_mlx.config import LoadParams
    from dflash2_mlx.memory.verdict import examine
    from dflash2_mlx.store.opening import open_pair

    params = LoadParams(str(stored[0]), str(stored[1]))
    memory(int(examine(open_pair(params), 259, linux()).need.total * 1.05))
    outcome = cli("generate", "-m", stored[0], "--draft", stored[1], "-n", 2, "hello")
    warnings = [line for line in outcome.err.splitlines() if "tight here" in line]
    assert outcome.code == 0 and len(warnings) == 1
