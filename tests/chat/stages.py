"""A chat without a terminal: lines go in, what was said and shown comes out."""

import io
from collections.abc import Iterable

from dflash2_mlx.chat.chat import Chat, Program
from dflash2_mlx.chat.keys import Keyboard
from dflash2_mlx.chat.loop import Loop
from dflash2_mlx.chat.settings import ChatSettings
from dflash2_mlx.chat.stage import PlainStage
from dflash2_mlx.cli.report import stat_lines
from dflash2_mlx.config import EngineParams, SamplingParams
from dflash2_mlx.errors import UsageError


class Script:
    """A reader that hands over given lines and remembers what stood in the prompt."""

    cleared = False

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self.prefills: list[str] = []

    def read(self, prefill: str = "") -> str:
        self.prefills.append(prefill)
        line = next(self._lines, None)
        if line is None:
            raise EOFError
        return line


class Talk:
    """A chat over `session`."""

    def __init__(self, session, *, interactive: bool = False) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        stage = PlainStage(self.out, self.err, interactive=interactive)
        settings = ChatSettings(SamplingParams(), EngineParams())
        self.kept: list[str] = []
        self.models: dict[str, object] = {}
        program = Program(stat_lines, lambda: ["pairs"], self.prepare, lambda said, name: self.kept.append(said.length))
        self.chat = Chat(session, settings, stage, Keyboard(live=False), program)
        self.loop = Loop(self.chat)

    def prepare(self, name: str):
        """What loads one of `models`."""
        if name not in self.models:
            raise UsageError(f"there is no model {name}")

        def load():
            if isinstance(self.models[name], Exception):
                raise self.models[name]
            return self.models[name], SamplingParams()

        return load

    def hear(self, *lines: str) -> str:
        """Run the lines; what was said meanwhile."""
        before = len(self.err.getvalue())
        for line in lines:
            self.loop.hear(line)
        return self.err.getvalue()[before:]

    def run(self, script: Script) -> int:
        """Run the script to its end; the exit code."""
        return self.loop.run(script)
