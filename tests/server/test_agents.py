"""Coding agents as people install them, on a scripted model: a question, a tool that reads a file, the answer, a
second turn. Skipped where they are not on the PATH: npm install -g @anthropic-ai/claude-code @openai/codex opencode-ai
They get a home of their own, so that nobody's settings are read or written.
"""

import json
import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from dflash2_mlx.server.settings import ServeSettings
from live import running
from scripted import ScriptedSession, tokenizer

pytestmark = pytest.mark.slow

NOTE = "hello from the file"
ASK, AGAIN = "What does note.txt say?", "And again?"
AGENTS = {  # the first turn's arguments, the second's, and the tool that can read a file, with how it is called
    "claude": (["-p", ASK, "--allowedTools", "Read"], ["-c", "-p", AGAIN], "Read", {"file_path": "{folder}/note.txt"}),
    "codex": (
        ["exec", "--skip-git-repo-check", ASK],
        ["exec", "--skip-git-repo-check", "resume", "--last", AGAIN],
        "exec_command",
        {"cmd": "cat note.txt"},
    ),
    "opencode": (["run", ASK], ["run", "-c", AGAIN], "bash", {"command": "cat note.txt", "description": "Show it"}),
}


class Agent(ScriptedSession):
    """Calls the tool until its result is in the prompt, and then says what it was."""

    tool: str
    arguments: dict[str, str]

    def answer(self, request) -> str:
        thought = "" if request.prompt.channel == "answer" else "I should look.\n</think>\n\n"
        if NOTE in self.tokenizer.decode(list(request.prompt.tokens)):
            return f"{thought}It says: {NOTE}."
        if self.tool not in [tool["function"]["name"] for tool in request.text.tools]:
            return f"{thought}A title."
        given = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in self.arguments.items())
        return f"{thought}<tool_call>\n<function={self.tool}>\n{given}</function>\n</tool_call>"


@pytest.mark.filterwarnings("ignore:Token indices sequence length")
@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_reads_a_file_and_its_next_prompt_goes_on_where_the_last_one_ended(name, make_state, tmp_path):
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not on the PATH")
    first, second, tool, arguments = AGENTS[name]
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    home.mkdir()
    (work / "note.txt").write_text(NOTE, encoding="utf-8")
    session = Agent(tokenizer(), round_size=5)
    session.tool = tool
    session.arguments = {key: value.format(folder=work) for key, value in arguments.items()}
    session.text = session.answer
    with running(make_state(session, ServeSettings(), 200_000)) as url:
        for turn in (first, second):
            assert NOTE in run(name, url, turn, work, home)
    asked = [request.prompt.tokens for request in session.requests if tool in json.dumps(request.text.tools)]
    assert len(asked) == 3
    for before, after in pairwise(asked):
        assert after[: len(before) - 1] == before[:-1], "the prefix cache could not be used"


def run(name: str, url: str, arguments: list[str], work: Path, home: Path) -> str:
    """What the agent says."""
    command = [sys.executable, "-m", "dflash2_mlx", "launch", name, "--exec", "--base-url", url, "--", *arguments]
    root = str(Path(__file__).parents[2])
    offline = {"OPENCODE_DISABLE_MODELS_FETCH": "1"}
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PWD": str(work), "PYTHONPATH": root, **offline}
    done = subprocess.run(
        command, cwd=work, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
