"""The soak's decisions, with a scripted session and a memory that grows as it is told."""

import pytest
from bench_fakes import FakeSession, plain_rounds

from dflash2_mlx.bench.soak import Sample, Soak, SoakPlan, slopes
from dflash2_mlx.bench.workloads import Workload
from dflash2_mlx.memory.machine import MemoryInUse, memory_in_use

CHAT = Workload("chat", "about", 64, (("one",), ("two",)))
MB = 2**20


def curve(*, active=0.0, resident=0.0, seconds=600, settle=0.0):
    """A sample every 10 s: so many bytes a second of growth, and `settle` more bytes after the first third."""
    samples = []
    for at in range(0, seconds, 10):
        extra = settle if at > seconds / 4 else 0
        memory = MemoryInUse(
            int(100 * MB + active * at + extra), 10 * MB, 120 * MB, int(300 * MB + resident * at + extra)
        )
        samples.append(Sample(float(at), memory))
    return samples


def test_steady_memory_does_not_grow():
    assert slopes(curve()) == (0.0, 0.0, False)


def test_a_leak_is_growth_and_its_slope_is_told():
    active, _, grows = slopes(curve(active=50_000))
    assert active == pytest.approx(50_000, rel=1e-3) and grows


def test_memory_of_the_process_counts_even_where_mlx_stays_flat():
    assert slopes(curve(resident=80_000))[2]


def test_a_warm_up_that_settles_is_no_growth():
    assert slopes(curve(settle=100 * MB))[2] is False


def test_a_minute_is_too_short_to_tell():
    assert slopes(curve(active=50_000, seconds=60))[2] is None
    assert slopes([]) == (0.0, 0.0, None)


def test_a_soak_cancels_restarts_and_asks_for_a_known_answer(clock):
    sessions = []

    def open_session():
        sessions.append(FakeSession(clock, plain_rounds(range(1, 6))))
        return sessions[-1]

    plan = SoakPlan(open_session, 200.0, 1, len, lambda: MemoryInUse(1, 2, 3, 4), clock)
    soak = Soak(plan, [CHAT])
    list(soak.run(lambda _: None))
    assert soak.answers > 100 and len(sessions) == soak.restarts + 1
    assert 0.2 < soak.cancelled / soak.answers < 0.4 and 0.1 < soak.restarts / soak.answers < 0.3
    assert soak.text_checks == soak.answers // 10 and soak.text_changes == 0 and len(soak.samples) == soak.answers
    assert sum(s.closed for s in sessions) == sum(len(s.seen) for s in sessions), "every stream was closed"


def test_a_text_that_changes_is_counted(clock):
    class Drifting(FakeSession):
        def stream(self, request):
            self.rounds = plain_rounds([len(self.seen)])
            return super().stream(request)

    soak = Soak(SoakPlan(lambda: Drifting(clock, []), 100.0, 1, len, lambda: MemoryInUse(1, 2, 3, 4), clock), [CHAT])
    list(soak.run(lambda _: None))
    assert soak.text_changes == soak.text_checks > 0


def test_the_memory_of_this_process_is_known():
    found = memory_in_use()
    assert found.active_bytes >= 0 and found.resident_bytes and found.resident_bytes > 10 * MB
