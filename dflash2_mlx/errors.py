"""Every error a user can cause. Knows nothing else of the package.

DFlash2Error                 exit 1: one line on stderr, no traceback
|-- LoadError                a folder or repository is not a usable model
|   |-- ConfigError          a config key is missing, out of range, or does not fit its partner
|   |-- WeightsError         tensors missing, unexpected, cut or in a foreign format
|   `-- UnsupportedError     the architecture cannot be served exactly, so it is not served at all
|-- PromptError              nothing to answer, or text that cannot be read
|   `-- PromptTooLongError   more tokens than the context holds
|-- TemplateError            the chat template refused these messages or this setting
|-- DeviceError              the GPU failed, or there is none
|   `-- DeviceMemoryError    no memory is left for the work
|-- ServeError               the server cannot listen where it should
|-- LaunchError              no server answers a client, or the client is not installed
`-- UsageError               exit 2: a parameter outside its range, or two that exclude each other

A message has three parts: what happened with the values, why, what to type next.
"""

import re

# Control characters, line separators and what turns the direction of writing.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """`text` on one line, control characters as escapes: names and files from outside must not steer a terminal."""
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


class DFlash2Error(Exception):
    """Base of all errors that a user can cause; `str(error)` is the line to show."""

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message))


class LoadError(DFlash2Error):
    """A folder or repository is not a usable model. Check the path, or fetch it again."""


class ConfigError(LoadError):
    """A config key is missing, out of range, or does not fit the other model of the pair."""


class WeightsError(LoadError):
    """Tensors are missing, unexpected, cut short or stored in a foreign format."""


class UnsupportedError(LoadError):
    """The architecture cannot be rolled back exactly. Use a supported target, or plain mlx-lm."""


class PromptError(DFlash2Error):
    """The prompt is empty, or it cannot be read. Give some text."""


class PromptTooLongError(PromptError):
    """The prompt has more tokens than the context holds. Shorten it, or drop what was said first."""


class TemplateError(DFlash2Error):
    """The chat template refused the messages or a setting. Change the messages as it says."""


class DeviceError(DFlash2Error):
    """The GPU failed or is not there. faults: 1 = it gave up on a command, 2 = it takes no more from this process."""

    def __init__(self, message: str, *, faults: int = 0) -> None:
        super().__init__(message)
        self.faults = faults


class DeviceMemoryError(DeviceError):
    """No memory is left for the work. Shorten the prompt, or make room."""


class ServeError(DFlash2Error):
    """The address cannot be listened on. Give another port or host."""


class LaunchError(DFlash2Error):
    """No server answers, it refused, or the client is not installed. Start the one or install the other."""


class UsageError(DFlash2Error, ValueError):
    """A parameter is outside its range or contradicts another one. See `--help`."""

    exit_code = 2
