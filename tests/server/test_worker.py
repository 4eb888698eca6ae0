"""The engine thread over fake sessions: order, bounds, cancelling, failing, dying, stopping. No MLX."""

import threading
import time
from collections.abc import Callable, Generator

import pytest

from dflash2_mlx.errors import DeviceError, DeviceMemoryError
from dflash2_mlx.events import Finished, Prefilling, Round
from dflash2_mlx.server.worker import CancelledError, EngineGoneError, Failed, QueueFullError, Worker
from dflash2_mlx.session.statistics import Setting, Stats

SETTING = Setting("plain", 1, "fake", None, "greedy", None)
DONE = Finished("stop", None, Stats(prompt_tokens=1).summary(SETTING, 0))


class Receiver:
    """Collects the updates of one job."""

    def __init__(self) -> None:
        self.updates: list[object] = []
        self.over = threading.Event()

    def __call__(self, update: object) -> None:
        self.updates.append(update)
        if isinstance(update, Finished | Failed):
            self.over.set()

    @property
    def last(self) -> object:
        assert self.over.wait(5), "no last update came"
        return self.updates[-1]


def says(*events: object) -> Callable[[object], Generator]:
    def work(opened: object) -> Generator:
        yield from events

    return work


def until(gate: threading.Event, steps: int = 500) -> Callable[[object], Generator]:
    """Rounds until the gate opens."""

    def work(opened: object) -> Generator:
        for _ in range(steps):
            yield Round((1,), 0, 0)
            if gate.wait(0.01):
                break
        yield DONE

    return work


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.002)


@pytest.fixture
def worker():
    worker = Worker(lambda: "opened", max_queue=3)
    worker.start()
    wait_for(lambda: worker.state == "ready")
    yield worker
    worker.stop()
    assert worker.join(5)


def submit(worker: Worker, work: Callable) -> Receiver:
    receiver = Receiver()
    receiver.job = worker.submit(work, receiver)
    return receiver


def test_updates_come_in_order_and_all_work_happens_on_the_engine_thread(worker):
    threads = []

    def work(opened):
        assert opened == "opened"
        threads.append(threading.current_thread().name)
        yield Prefilling(0, 2)
        yield Round((1, 2), 1, 1)
        yield DONE

    receiver = submit(worker, work)
    assert receiver.last == DONE
    assert receiver.updates == [Prefilling(0, 2), Round((1, 2), 1, 1), DONE]
    assert threads == ["dflash2-engine"]


def test_jobs_run_one_after_the_other_in_the_order_they_came(worker):
    order, gate = [], threading.Event()
    first = submit(worker, until(gate))
    wait_for(lambda: worker.active == 1)
    rest = [submit(worker, lambda opened, n=n: iter_of(order, n)) for n in range(3)]
    gate.set()
    assert first.last == DONE and [receiver.last for receiver in rest] == [DONE] * 3 and order == [0, 1, 2]


def iter_of(order: list[int], number: int) -> Generator:
    order.append(number)
    yield DONE


def test_the_queue_is_bounded_and_a_place_comes_free_again(worker):
    gate = threading.Event()
    running = submit(worker, until(gate))
    wait_for(lambda: worker.active == 1)
    waiting = [submit(worker, says(DONE)) for _ in range(3)]
    with pytest.raises(QueueFullError, match="3 requests are waiting"):
        submit(worker, says(DONE))
    waiting[1].job.cancel()
    assert worker.waiting == 2 and isinstance(waiting[1].last.error, CancelledError)
    extra = submit(worker, says(DONE))
    gate.set()
    assert [r.last for r in (running, waiting[0], waiting[2], extra)] == [DONE] * 4


def test_a_cancelled_job_is_over_at_once_even_in_a_long_step(worker):
    gate = threading.Event()

    def work(opened):
        yield Prefilling(0, 9)
        gate.wait(5)
        yield Round((1,), 0, 0)
        yield DONE

    receiver = submit(worker, work)
    wait_for(lambda: len(receiver.updates) == 1)
    receiver.job.cancel()
    assert isinstance(receiver.last.error, CancelledError) and worker.active == 1
    gate.set()
    wait_for(lambda: worker.active == 0)
    assert len(receiver.updates) == 2 and submit(worker, says(DONE)).last == DONE


def test_a_cancelled_job_ends_at_its_next_event_and_its_work_is_closed(worker):
    closed = threading.Event()

    def work(opened):
        try:
            while True:
                time.sleep(0.002)
                yield Prefilling(1, 9)
        finally:
            closed.set()

    receiver = submit(worker, work)
    wait_for(lambda: len(receiver.updates) > 2)
    receiver.job.cancel()
    assert isinstance(receiver.last, Failed) and isinstance(receiver.last.error, CancelledError)
    wait_for(lambda: closed.is_set() and worker.active == 0)
    assert worker.state == "ready"


def test_a_job_that_raises_ends_alone_and_its_error_carries_no_frames(worker):
    def work(opened):
        yield Round((1,), 0, 0)
        raise RuntimeError("[metal::malloc] Resource limit 499000 exceeded") from ValueError("why")

    failed, fine = submit(worker, work), submit(worker, says(DONE))
    assert isinstance(failed.last.error, DeviceMemoryError) and "[metal::malloc] Resource" in str(failed.last.error)
    assert failed.last.error.__traceback__ is None and failed.last.error.__cause__ is None
    assert fine.last == DONE and worker.state == "ready"


def test_work_that_ends_without_finishing_is_a_failure_not_a_silence(worker):
    assert isinstance(submit(worker, says(Round((1,), 0, 0))).last, Failed)


def test_a_receiver_that_raises_cancels_its_job_only(worker):
    seen = []

    def deaf(update):
        seen.append(update)
        raise RuntimeError("the event loop is closed")

    worker.submit(until(threading.Event()), deaf)
    assert submit(worker, says(DONE)).last == DONE
    assert len(seen) <= 2


def test_a_dead_thread_is_seen_and_leaves_nobody_waiting(caplog):
    worker = Worker(lambda: "opened", max_queue=3)
    worker.start()
    gate = threading.Event()

    def dies(opened):
        gate.wait(5)
        raise SystemExit("out of the thread")
        yield DONE

    wait_for(lambda: worker.state == "ready")
    receivers = [submit(worker, dies), submit(worker, says(DONE))]
    gate.set()
    assert all(isinstance(receiver.last, Failed) for receiver in receivers)
    assert worker.join(5) and worker.state == "dead" and (worker.active, worker.waiting) == (0, 0)
    with pytest.raises(EngineGoneError, match="dead"):
        submit(worker, says(DONE))
    assert "the engine thread died" in caplog.text


def test_a_session_that_cannot_be_opened_is_told_with_its_reason():
    def fails():
        raise OSError("no weights")

    worker = Worker(fails)
    worker.start()
    assert worker.join(5) and worker.state == "failed" and str(worker.error) == "no weights"
    with pytest.raises(EngineGoneError, match="failed"):
        submit(worker, says(DONE))


def test_nothing_is_accepted_while_loading():
    gate = threading.Event()
    worker = Worker(lambda: gate.wait(5))
    worker.start()
    assert worker.state == "loading"
    with pytest.raises(EngineGoneError, match="loading"):
        submit(worker, says(DONE))
    gate.set()
    wait_for(lambda: worker.state == "ready")
    worker.stop()
    assert worker.join(5)


def test_stopping_ends_what_runs_and_what_waits_and_the_thread(worker):
    receivers = [submit(worker, until(threading.Event())), submit(worker, says(DONE))]
    wait_for(lambda: worker.active == 1)
    worker.stop()
    assert worker.join(5) and worker.state == "stopped"
    assert all(isinstance(receiver.last.error, EngineGoneError) for receiver in receivers)


def test_a_job_that_says_nothing_for_a_minute_is_stalled_and_any_event_ends_that(worker, monkeypatch):
    gate, going = threading.Event(), threading.Event()

    def work(opened):
        gate.wait(5)
        yield Round((1,), 0, 0)
        going.wait(5)
        yield DONE

    receiver = submit(worker, work)
    wait_for(lambda: worker.active == 1)
    assert not worker.stalled
    monkeypatch.setattr("dflash2_mlx.server.worker.STALLED_S", 0.05)
    wait_for(lambda: worker.stalled)
    monkeypatch.setattr("dflash2_mlx.server.worker.STALLED_S", 60.0)
    gate.set()
    wait_for(lambda: bool(receiver.updates))
    assert not worker.stalled
    going.set()
    assert receiver.last == DONE


def test_a_thousand_cancellations_at_random_moments_leak_nothing(worker):
    threads = threading.active_count()
    for number in range(1000):
        receiver = submit(worker, says(*[Round((1,), 0, 0)] * (number % 7), DONE))
        receiver.job.cancel()
        assert receiver.last
    wait_for(lambda: (worker.active, worker.waiting) == (0, 0))
    assert threading.active_count() == threads and submit(worker, says(DONE)).last == DONE


FAULT = "[METAL] Command buffer execution failed: Caused GPU Hang Error (00000003:kIOGPUCommandBufferCallbackErrorHang)"
LOST = "[METAL] Command buffer execution failed: Ignored (for causing prior/excessive GPU errors) (00000004:%s)"
IGNORED = LOST % "kIOGPUCommandBufferCallbackErrorSubmissionsIgnored"


def fails(text: str) -> Callable[[object], Generator]:
    def work(opened: object) -> Generator:
        yield Round((1,), 0, 0)
        raise RuntimeError(text)

    return work


def test_one_fault_of_the_device_ends_its_job_and_a_second_in_a_row_ends_the_engine(worker):
    for _ in range(3):
        assert isinstance(submit(worker, fails(FAULT)).last.error, DeviceError)
        assert submit(worker, says(DONE)).last == DONE
    assert submit(worker, fails("another one")).last and submit(worker, fails(FAULT)).last
    assert worker.state == "ready"
    assert submit(worker, fails(FAULT)).last
    wait_for(lambda: worker.state == "dead")
    assert isinstance(worker.error, DeviceError) and "Hang" in str(worker.error)


def test_a_device_that_takes_no_more_work_ends_the_engine_at_once(worker):
    gate = threading.Event()
    first = submit(worker, until(gate))
    waiting = [submit(worker, fails(IGNORED)), submit(worker, says(DONE))]
    gate.set()
    assert first.last == DONE and "Start it again" in str(waiting[0].last.error)
    assert isinstance(waiting[1].last.error, EngineGoneError) and worker.join(5) and worker.state == "dead"


def test_a_fault_after_the_client_has_left_counts_too(worker):
    for _ in range(2):
        gate = threading.Event()

        def work(opened: object, gate: threading.Event = gate) -> Generator:
            yield Prefilling(0, 9)
            gate.wait(5)
            raise RuntimeError(FAULT)

        receiver = submit(worker, work)
        wait_for(lambda receiver=receiver: bool(receiver.updates))
        receiver.job.cancel()
        gate.set()
        assert isinstance(receiver.last.error, CancelledError)
        wait_for(lambda: worker.active == 0)
    wait_for(lambda: worker.state == "dead")


def test_no_memory_for_one_prompt_is_no_fault_of_the_device(worker):
    for _ in range(3):
        failed = submit(worker, fails("[metal::malloc] Unable to allocate 9 bytes"))
        assert isinstance(failed.last.error, DeviceMemoryError)
    assert submit(worker, says(DONE)).last == DONE


def test_the_thread_leaves_the_device_last_whatever_ended_it():
    left: list[str] = []

    def leave() -> None:
        left.append(threading.current_thread().name)

    def broken() -> str:
        raise RuntimeError("[metal] No Metal device available")

    failed, stopped = Worker(broken, leave=leave), Worker(lambda: "opened", leave=leave)
    for worker in (failed, stopped):
        worker.start()
    assert failed.join(5) and isinstance(failed.error, DeviceError) and "finds no GPU" in str(failed.error)
    wait_for(lambda: stopped.state == "ready")
    stopped.stop()
    assert stopped.join(5) and left == ["dflash2-engine"] * 2


def test_the_queue_is_closed_where_waiting_is_hopeless_and_says_for_how_long(worker, monkeypatch):
    monkeypatch.setattr("dflash2_mlx.server.worker.HOPELESS_S", 1.0)
    worker._answer_s = 0.6
    gate = threading.Event()
    running = submit(worker, until(gate))
    wait_for(lambda: worker.active == 1)
    waiting = [submit(worker, says(DONE)) for _ in range(2)]
    with pytest.raises(QueueFullError, match="2 requests are waiting, and answers take") as full:
        submit(worker, says(DONE))
    assert 0 < full.value.retry_s < 1
    gate.set()
    assert [receiver.last for receiver in (running, *waiting)] == [DONE] * 3
    wait_for(lambda: worker._answer_s < 0.5)
