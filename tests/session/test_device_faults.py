"""What MLX says when the device fails, as it says it, and what a user is told. Nothing here needs a device."""

import subprocess
import sys

import pytest

from dflash2_mlx.errors import DeviceError, DeviceMemoryError, UsageError
from dflash2_mlx.session.faults import device_fault

COMMAND = "[METAL] Command buffer execution failed: "
CODE = "kIOGPUCommandBufferCallbackError"


@pytest.mark.parametrize(
    ("said", "kind", "faults", "hint"),
    [
        (
            f"{COMMAND}Impacting Interactivity (0000000e:{CODE}ImpactingInteractivity)",
            *(DeviceError, 1, "AGX_RELAX_CDM_CTXSTORE_TIMEOUT=1 dflash2-mlx"),
        ),
        (
            f"{COMMAND}Caused GPU Timeout Error (00000002:{CODE}Timeout)",
            *(DeviceError, 1, "AGX_RELAX_CDM_CTXSTORE_TIMEOUT=1"),
        ),
        (
            f"{COMMAND}Insufficient Memory (00000008:{CODE}OutOfMemory)",
            *(DeviceMemoryError, 1, "--max-context"),
        ),
        (
            f"{COMMAND}Ignored (for causing prior/excessive GPU errors) (00000004:{CODE}SubmissionsIgnored)",
            *(DeviceError, 2, "Start it again"),
        ),
        (
            f"{COMMAND}Discarded (victim of GPU error/recovery) (00000005:{CODE}InnocentVictim)",
            *(DeviceError, 1, "Try again"),
        ),
        ("[metal::malloc] Unable to allocate 9 bytes.", DeviceMemoryError, 0, "shorter prompt"),
        ("[metal::malloc] Resource limit (499000) exceeded.", DeviceMemoryError, 0, "shorter prompt"),
        (
            "[metal::malloc] Attempting to allocate 99 bytes which is greater than the maximum allowed buffer size",
            *(DeviceMemoryError, 0, "shorter prompt"),
        ),
        ("[metal::Device] No Metal device found", DeviceError, 0, "virtual machine"),
    ],
)
def test_a_fault_is_named_with_what_to_do(said, kind, faults, hint):
    fault = device_fault(RuntimeError(said))
    assert type(fault) is kind and fault.faults == faults and hint in str(fault)
    assert said[:39] in str(fault) and "\n" not in str(fault) and device_fault(fault) is None


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), ValueError(COMMAND), UsageError("out of memory")])
def test_other_errors_are_left_alone(error):
    assert device_fault(error) is None


def test_python_s_own_lack_of_memory_is_one_too():
    assert isinstance(device_fault(MemoryError()), DeviceMemoryError)


def test_recognising_a_fault_loads_no_mlx():
    code = "import sys; import dflash2_mlx.session.faults; print('mlx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.slow
def test_a_process_whose_engine_ran_on_a_thread_ends_in_peace():
    """Without `leave` it was killed by SIGABRT on Linux."""
    code = (
        "import threading\n"
        "from dflash2_mlx.config import LoadParams\n"
        "from dflash2_mlx.store.opening import open_pair\n"
        "from dflash2_mlx.server.model import open_engine\n"
        "from dflash2_mlx.server.settings import ServeSettings\n"
        "from dflash2_mlx.server.worker import Worker\n"
        "from dflash2_mlx.session.faults import leave_thread\n"
        "opened = threading.Event()\n"
        "def open_and_tell():\n"
        "    engine = open_engine(open_pair(LoadParams('demo')), ServeSettings())\n"
        "    opened.set()\n"
        "    return engine\n"
        "worker = Worker(open_and_tell, leave=leave_thread)\n"
        "worker.start()\n"
        "assert opened.wait(60)\n"
        "worker.stop()\n"
        "assert worker.join(5)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (done.returncode, done.stderr)
