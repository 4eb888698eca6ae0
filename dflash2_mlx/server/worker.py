"""The engine thread: the only door between threads. Knows events and sessions by their iterators, nothing of HTTP.

Everything that touches the device, loading included, runs on this one thread. Jobs wait in a bounded queue, first come
first served; what a job says is handed over by its `deliver`, which must not block.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from dflash2_mlx.errors import DeviceError, DFlash2Error
from dflash2_mlx.events import Finished
from dflash2_mlx.session.faults import device_fault

if TYPE_CHECKING:
    from dflash2_mlx.session.session import Event

DEFAULT_QUEUE = 256
STALLED_S = 60.0
HOPELESS_S = 600.0  # how long the usual clients wait for an answer
_NEWEST = 0.2  # weight of the newest answer in what answers take
_LOST_AFTER = 2  # faults of the device
State = Literal["loading", "ready", "failed", "dead", "stopped"]
Opened = TypeVar("Opened")
_logger = logging.getLogger(__name__)


class QueueFullError(DFlash2Error):
    """More jobs wait than may wait, or for longer than anybody does. retry_s: when a place may be free."""

    def __init__(self, message: str, retry_s: float) -> None:
        super().__init__(message)
        self.retry_s = retry_s


class EngineGoneError(DFlash2Error):
    """No job can run: the engine is not loaded yet, stopped, or its thread died."""


class CancelledError(DFlash2Error):
    """The job was cancelled before its end."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The last word of a job that did not finish: what it raised, or why it was cancelled. Carries no traceback."""

    error: Exception


if TYPE_CHECKING:
    Update = Event | Failed


class Job(Generic[Opened]):
    """One piece of work on its way through the engine: iterate `work(opened)`, hand every event to `deliver`."""

    def __init__(
        self,
        work: "Callable[[Opened], Generator[Event, None, None]]",
        deliver: "Callable[[Update], None]",
        worker: "Worker[Opened]",
    ) -> None:
        self.work = work
        self.cancelled: Exception | None = None
        self._deliver, self._worker = deliver, worker
        self._speaking = threading.RLock()
        self._over = False

    def cancel(self, reason: Exception | None = None) -> None:
        """Tell the receiver that it is over, at once; the work ends at its next prefill chunk or round.

        Any thread may ask, and more than once.
        """
        self.cancelled = self.cancelled or reason or CancelledError("the request was cancelled.")
        self._worker.forget(self)
        self.end(_failure(self.cancelled))

    def say(self, update: "Update") -> None:
        """Deliver, unless the last word was said; a receiver that cannot be reached any more has cancelled."""
        with self._speaking:
            if self._over:
                return
            try:
                self._deliver(update)
            except Exception as error:
                self.cancelled = self.cancelled or error

    def end(self, last: "Update") -> None:
        """Deliver the last word, if it was not said yet."""
        with self._speaking:
            self.say(last)
            self._over = True


class Worker(Generic[Opened]):
    """Owns the engine thread. `open_session` runs there first, and gives what jobs are given; `leave` runs there last.

    The thread dies where the device is lost: two faults of it in a row, or one that says so.
    """

    def __init__(
        self,
        open_session: Callable[[], Opened],
        *,
        max_queue: int = DEFAULT_QUEUE,
        leave: Callable[[], None] = lambda: None,
    ) -> None:
        self._open_session, self.max_queue, self._leave = open_session, max_queue, leave
        self.opened: Opened | None = None
        self.error: BaseException | None = None  # why the state is `failed` or `dead`
        self._waiting: deque[Job[Opened]] = deque()
        self._current: Job[Opened] | None = None
        self._wake = threading.Condition()
        self._stopping = self._ended = False
        self._progress = time.monotonic()
        self._fault: DeviceError | None = None  # in the last job
        self._faults = 0  # of the device, since an answer was finished
        self._answer_s = 0.0  # what an answer took lately, 0 = nothing is known
        self._thread = threading.Thread(target=self._run, name="dflash2-engine", daemon=True)

    def start(self) -> None:
        """Begin to load."""
        self._thread.start()

    @property
    def state(self) -> State:
        """What the thread is about."""
        if self._stopping:
            return "stopped"
        if self._ended:
            return "failed" if self.opened is None else "dead"
        return "loading" if self.opened is None else "ready"

    @property
    def active(self) -> int:
        """How many jobs run: 0 or 1."""
        return int(self._current is not None)

    @property
    def waiting(self) -> int:
        """How many jobs wait."""
        return len(self._waiting)

    @property
    def stalled(self) -> bool:
        """Whether a job runs and nothing has come of it for a minute."""
        return self.active > 0 and time.monotonic() - self._progress > STALLED_S

    def submit(
        self, work: "Callable[[Opened], Generator[Event, None, None]]", deliver: "Callable[[Update], None]"
    ) -> Job[Opened]:
        """Queue `work`. Every job's last update is Finished or Failed.

        Raises: QueueFullError; EngineGoneError unless the state is `ready`.
        """
        job = Job(work, deliver, self)
        with self._wake:
            if self.state != "ready":
                raise EngineGoneError(f"the engine is {self.state}. Look at /health.")
            self.check_queue()
            self._waiting.append(job)
            self._wake.notify()
        return job

    def check_queue(self) -> None:
        """Raise QueueFullError where one more job could not wait, or would in vain."""
        waiting, wait_s = len(self._waiting), len(self._waiting) * self._answer_s
        if waiting >= self.max_queue:
            raise QueueFullError(f"{waiting} requests are waiting, which is the most. Try again later.", self._answer_s)
        if wait_s > HOPELESS_S:
            raise QueueFullError(
                f"{waiting} requests are waiting, and answers take {self._answer_s:.0f} s lately, so the wait would be "
                f"about {wait_s / 60:.0f} minutes. Try again later.",
                wait_s - HOPELESS_S,
            )

    def forget(self, job: Job[Opened]) -> None:
        """Take a cancelled job out of the queue, if it still waits there."""
        with self._wake:
            if job in self._waiting:
                self._waiting.remove(job)

    def stop(self, reason: Exception | None = None) -> None:
        """Accept nothing more and cancel everything; the thread ends once its current step is over."""
        with self._wake:
            self._stopping = True
            jobs = [*self._waiting, *([self._current] if self._current else [])]
            self._wake.notify()
        for job in jobs:
            job.cancel(reason or EngineGoneError("the server is shutting down."))

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread's end; whether it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.opened = self._open_session()
            while (job := self._next()) is not None:
                last, began = self._answer(job, self.opened), self._began
                with self._wake:
                    self._current = None
                    if isinstance(last, Finished):
                        took = time.monotonic() - began
                        self._answer_s += (took - self._answer_s) * (_NEWEST if self._answer_s else 1)
                job.end(last)
                self._check_device(last)
        except BaseException as error:  # the thread is over, whatever it was: say so, and leave nobody waiting
            self.error = device_fault(error) or error
            if self.opened is not None:
                _logger.critical("the engine thread died: %s: %s", type(error).__name__, error)
        finally:
            self._close()
            self._leave()

    def _check_device(self, last: "Update") -> None:
        """Count what the device did wrong since it did something right. Raises: DeviceError where it is lost."""
        if isinstance(last, Finished):
            self._faults = 0
        if self._fault is not None:
            self._faults += self._fault.faults
            if self._faults >= _LOST_AFTER:
                raise self._fault

    def _next(self) -> Job[Opened] | None:
        with self._wake:
            while not self._waiting and not self._stopping:
                self._wake.wait()
            if self._stopping:
                return None
            self._current, self._progress = self._waiting.popleft(), time.monotonic()
            self._began = self._progress
            return self._current

    def _answer(self, job: Job[Opened], opened: Opened) -> "Update":
        """Run one job to its last update, which is not delivered yet; what it raises ends this job only."""
        last, self._fault = None, None
        try:
            with closing(job.work(opened)) as events:
                for event in events:
                    self._progress = time.monotonic()
                    if job.cancelled:
                        break
                    if isinstance(event, Finished):
                        last = event
                    else:
                        job.say(event)
        except Exception as error:
            if not isinstance(error, DFlash2Error):
                _logger.exception("a request failed")
            self._fault = device_fault(error)
            job.cancelled = job.cancelled or self._fault or error
        if job.cancelled:
            return _failure(job.cancelled)
        return last or _failure(RuntimeError("the engine ended an answer without finishing it"))

    def _close(self) -> None:
        with self._wake:
            self._ended = True
            jobs = [*([self._current] if self._current else []), *self._waiting]
            self._current = None
            self._waiting.clear()
        for job in jobs:
            job.end(_failure(EngineGoneError("the engine has stopped. Look at /health.")))


def _failure(error: Exception) -> Failed:
    """The last word of a job that did not finish. Frames would keep arrays alive on another thread."""
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return Failed(error)
