"""What MLX says when the device fails, in our errors; and how a thread that used it ends. Imports MLX only then."""

from dflash2_mlx.errors import DeviceError, DeviceMemoryError

_COMMAND = "command buffer execution failed"
_NO_DEVICE = "no metal device"
_NO_MEMORY = ("unable to allocate", "attempting to allocate", "insufficient memory", "out of memory", "resource limit")
_TOO_LONG = ("impacting interactivity", "timeout", "hang")
_LOST = ("submissionsignored", "for causing prior")


def device_fault(error: BaseException) -> DeviceError | None:
    """What `error` says of the device; None where it says nothing of it.

    Source: MLX's messages, and the errors of Metal command buffers that they quote.
    """
    text = " ".join(str(error).split())
    lower, said = text.lower(), text[:200].rstrip(".")
    if not isinstance(error, RuntimeError | MemoryError) or isinstance(error, DeviceError):
        return None
    if _NO_DEVICE in lower:
        return DeviceError(f"MLX finds no GPU here ({said}). A virtual machine has none: use the Mac itself.")
    failed = _COMMAND in lower
    if failed and any(word in lower for word in _LOST):
        return DeviceError(f"macOS takes no more GPU work of this process ({said}). Start it again.", faults=2)
    if isinstance(error, MemoryError) or any(words in lower for words in _NO_MEMORY):
        return DeviceMemoryError(
            f"out of memory ({said or type(error).__name__}). Send a shorter prompt, close other programs, or give "
            "--max-context or a smaller model.",
            faults=int(failed),
        )
    if not failed:
        return None
    advice = "Try again; if it comes back, start the program again."
    if any(word in lower for word in _TOO_LONG):
        advice = "The screen waited too long for the GPU. Start it as: AGX_RELAX_CDM_CTXSTORE_TIMEOUT=1 dflash2-mlx ..."
    return DeviceError(f"the GPU gave up on its work ({said}). {advice}", faults=1)


def leave_thread() -> None:
    """To be called at the end of a thread that MLX ran on: what it keeps for the thread can abort the process."""
    import mlx.core as mx

    mx.clear_streams()
