"""Our rate beside plain mlx-lm's and other packages' with the same drafter: same prompts, same machine, one run.

`python scripts/bench_peers.py [--model DIR --draft DIR] [--peers NAME ...] [--repeat N] [--blas PATH|none]`.
The others are those of peer_process.py: the authors' package, mlx-vlm, mlx-dspark, each installed without its pins
into a virtual environment of its own under `--peer-venvs`. One that cannot be installed or cannot run the pair is left
out, and a line says why. Greedy. Every package runs in its own process and is asked in turn, so that noise hits all
alike. What is timed is the same for all: from the call with token ids to the last token id, prefill included, text and
loading excluded; beside it the rate after the first token. Every text is compared with plain mlx-lm's; only a
difference of ours is a failure. The last line is JSON.
"""

import argparse
import json
import os
import platform
import random
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from first_run import PROMPTS
from peer_process import PEERS, Runner, peer_python

DEMO = Path(__file__).parents[1] / "dflash2_mlx" / "demo"
BLAS = (
    "/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0",
    "/usr/lib/aarch64-linux-gnu/openblas-pthread/libopenblas.so.0",
    "/usr/lib64/libopenblasp.so.0",
)


@dataclass(slots=True)
class Entry:
    """One way to decode and what it did: seconds[repeat], after_first_s[repeat], tokens and groups by prompt."""

    name: str
    engine: str
    block_size: int | None
    seconds: list[float] = field(default_factory=list)
    after_first_s: list[float] = field(default_factory=list)
    tokens: list[list[int]] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(map(len, self.tokens))

    @property
    def rate(self) -> float:
        """Tokens a second of whole calls, the median over the repeats."""
        return self.count / statistics.median(self.seconds)

    @property
    def rate_after_first(self) -> float:
        """The same without the first token of every answer and what precedes it."""
        return (self.count - len(self.tokens)) / statistics.median(self.after_first_s)

    @property
    def per_round(self) -> float:
        """Tokens per round; the first token of an answer is no round."""
        rounds = sum(self.groups) - len(self.groups)
        return (self.count - len(self.groups)) / rounds if rounds else 1.0


def entries(peers: list[str], widest: int) -> list[Entry]:
    """The ways to decode, in the order in which they take turns."""
    found = []
    for block_size in (b for b in (5, 8) if b <= widest):
        found += [Entry(f"{PEERS[peer].label}, block {block_size}", peer, block_size) for peer in peers]
        found.append(Entry(f"dflash2-mlx, block {block_size}", "ours", block_size))
    found += [Entry(f"{PEERS[peer].label}, as it comes", peer, None) for peer in peers if PEERS[peer].adapts]
    return [*found, Entry("mlx-lm, plain", "mlx-lm", None), Entry("dflash2-mlx, plain", "ours", None)]


def blas_env(choice: str | None) -> tuple[dict[str, str], str]:
    """The environment that puts a fast matrix library under MLX's CPU backend on Linux, and a line for the header."""
    if platform.system() != "Linux" or choice == "none":
        return {}, "none preloaded"
    path = choice or next((path for path in BLAS if Path(path).exists()), None)
    if path is None:
        return {}, "none found to preload (Debian: libopenblas0-pthread): MLX's reference BLAS"
    threads = os.environ.get("OPENBLAS_NUM_THREADS")
    return {"LD_PRELOAD": path}, f"{path} preloaded" + (f", {threads} thread(s)" if threads else "")


def measure(
    ways: list[Entry], runners: dict[str, Runner], prompts: list[list[int]], end: list[int], options: argparse.Namespace
) -> None:
    """Time all ways `repeat` times over all prompts, turn and turn about; the first pass is a warm-up."""
    for repeat in range(options.repeat + 1):
        turns = ways[repeat % len(ways) :] + ways[: repeat % len(ways)]
        totals = {way.name: [0.0, 0.0] for way in ways}
        for number, prompt in enumerate(prompts):
            for way in turns:
                answer = runners[way.engine].ask(
                    "generate",
                    prompt=prompt,
                    max_tokens=options.max_tokens,
                    block_size=way.block_size,
                    end_tokens=end,
                )
                if repeat == 0:
                    way.tokens.append(answer["tokens"])
                    way.groups.append(answer["groups"])
                assert answer["tokens"] == way.tokens[number], f"{way.name}: prompt {number} changed between runs"
                totals[way.name][0] += answer["seconds"]
                totals[way.name][1] += answer["seconds"] - answer["first_s"]
        for way in ways if repeat else []:
            way.seconds.append(totals[way.name][0])
            way.after_first_s.append(totals[way.name][1])


def differences(ways: list[Entry]) -> list[str]:
    """Where a text is not that of plain mlx-lm: way, prompt, first differing token."""
    oracle = next(way for way in ways if way.engine == "mlx-lm")
    found = []
    for way in ways:
        for number, (tokens, expected) in enumerate(zip(way.tokens, oracle.tokens, strict=True)):
            if tokens != expected:
                same = next((i for i, (a, b) in enumerate(zip(tokens, expected, strict=False)) if a != b), None)
                at = min(len(tokens), len(expected)) if same is None else same
                found.append(f"{way.name}: prompt {number + 1} differs from token {at + 1} of {len(expected)}")
    return found


def show(ways: list[Entry]) -> None:
    """The table of rates; a rival that chooses its blocks by itself stands beside our widest."""
    ours = {way.block_size: way for way in ways if way.engine == "ours"}
    widest = max(size or 0 for size in ours) or None
    plain = next(way for way in ways if way.engine == "mlx-lm")
    print(f"{'':<28} {'tok/s':>8} {'range':>15} {'after 1st':>10} {'per round':>10} {'/ mlx-lm':>9} {'ours / it':>10}")
    for way in ways:
        rates = sorted(way.count / seconds for seconds in way.seconds)
        own = ours[widest if way.engine in PEERS and way.block_size is None else way.block_size]
        against = f"{own.rate / way.rate:>9.2f}x" if own is not way else ""
        print(
            f"{way.name:<28} {way.rate:>8.1f} {f'{rates[0]:.1f}-{rates[-1]:.1f}':>15} {way.rate_after_first:>10.1f} "
            f"{way.per_round:>10.2f} {way.rate / plain.rate:>8.2f}x {against}"
        )


def prefill_rates(runners: dict[str, Runner], vocab_size: int, length: int, repeat: int) -> dict[str, dict[str, float]]:
    """Median prompt tokens a second by package, to the first token; of ours also with what its drafter takes in."""
    draws = random.Random(0)
    prompt = [draws.randrange(vocab_size) for _ in range(length)]
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in runners}
    for turn in range(repeat + 1):
        for name, runner in runners.items():
            answer = runner.ask("prefill", prompt=prompt)
            if turn:
                taken[name].append(answer)
    return {
        name: {what: length / statistics.median(answer[what] for answer in answers) for what in answers[0]}
        for name, answers in taken.items()
    }


def show_prefill(rates: dict[str, dict[str, float]], length: int) -> None:
    """The rates on a line."""
    labels = {name: peer.label for name, peer in PEERS.items()} | {"ours": "dflash2-mlx", "mlx-lm": "mlx-lm"}
    shown = [f"{labels[name]} {rate['first_token']:.0f}" for name, rate in rates.items()]
    print(f"prefill of {length} random tokens, tok/s to the first token: {', '.join(shown)}")
    print(f"with what the drafter takes in of it: dflash2-mlx {rates['ours']['drafter_too']:.0f}")


def header(runners: dict[str, Runner], options: argparse.Namespace, blas: str, notes: list[str]) -> dict[str, Any]:
    """Print what the numbers are for; the versions of every package."""
    answers = {name: runner.ask("versions") for name, runner in runners.items()}
    found = {name: answer["versions"] for name, answer in answers.items()}
    python = answers["ours"]["python"]
    processor = next(
        (line.split(":")[1].strip() for line in _lines(Path("/proc/cpuinfo")) if line.startswith("model name")),
        platform.processor() or platform.machine(),
    )
    print(f"machine: {processor}, {platform.system()}, Python {python}; BLAS: {blas}")
    for name, versions in found.items():
        print(f"{name}: {', '.join(f'{package} {version}' for package, version in versions.items())}")
    print("\n".join(notes))
    print(f"target: {options.model}\ndrafter: {options.draft}")
    return found


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def start(options: argparse.Namespace, env: dict[str, str]) -> tuple[dict[str, Runner], list[str]]:
    """A process for every package that can run the pair, and a line on each of the others."""
    arguments = ["--model", str(options.model), "--draft", str(options.draft)]
    runners = {name: Runner(sys.executable, name, arguments, env) for name in ("ours", "mlx-lm")}
    notes = []
    for name in options.peers:
        python, note = peer_python(options.peer_venvs, name)
        if python:
            runner = Runner(python, name, arguments, env)
            try:
                runner.ask("generate", prompt=[1, 2, 3, 4], max_tokens=8, block_size=5, end_tokens=[])
                runners[name] = runner
            except RuntimeError as reason:
                runner.close()
                note = f"{PEERS[name].package} cannot run this pair, so it is left out: {reason}"
        notes.append(f"{PEERS[name].label}: {note}")
    return runners, notes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=DEMO / "target", help="the target's folder (default: bundled)")
    parser.add_argument("--draft", type=Path, default=DEMO / "drafter", help="the drafter's folder (default: bundled)")
    parser.add_argument("--repeat", type=int, default=5, help="timed passes over all prompts (default 5)")
    parser.add_argument("--max-tokens", type=int, default=128, help="tokens an answer at most (default 128)")
    parser.add_argument("--prompts", type=int, default=len(PROMPTS), help="how many prompts (default: all)")
    parser.add_argument("--prefill", type=int, default=2000, help="tokens of the prefill measurement (default 2000)")
    parser.add_argument("--blas", help="shared library to preload on Linux, or none (default: OpenBLAS where found)")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS), help="other packages (default: all)")
    parser.add_argument(
        "--peer-venvs",
        type=Path,
        default=Path(tempfile.gettempdir()) / "dflash2-mlx-peers",
        help="folder with a virtual environment for each (default: in the system's folder for temporary files)",
    )
    options = parser.parse_args()
    for number in ("repeat", "prompts", "prefill"):
        if getattr(options, number) < 1:
            parser.error(f"--{number} must be at least 1.")
    for folder in (options.model, options.draft):
        if not (folder / "config.json").exists():
            parser.error(f"{folder} holds no config.json: give the folders of a target and its drafter.")
    env, blas = blas_env(options.blas)
    runners, notes = start(options, env)
    versions = header(runners, options, blas, notes)
    chat = runners["ours"].ask("render", prompts=list(PROMPTS[: options.prompts]))
    ways = entries([name for name in options.peers if name in runners], chat["block_size"])
    measure(ways, runners, chat["prompts"], chat["end_tokens"], options)
    lengths, replies = [len(p) for p in chat["prompts"]], [len(tokens) for tokens in ways[-1].tokens]
    print(f"{len(lengths)} prompts of {min(lengths)}-{max(lengths)} tokens, replies of {min(replies)}-{max(replies)}")
    print(f"greedy, medians of {options.repeat}; tok/s over whole calls, prefill included\n")
    show(ways)
    unequal = differences(ways)
    print("\nall texts are equal" if not unequal else "\n" + "\n".join(unequal))
    prefill = prefill_rates(runners, chat["vocab_size"], options.prefill, options.repeat)
    show_prefill(prefill, options.prefill)
    for runner in runners.values():
        runner.close()
    rates = {way.name: {"rate": round(way.rate, 2), "after_first": round(way.rate_after_first, 2)} for way in ways}
    print(json.dumps({"rates": rates, "equal": not unequal, "prefill": prefill, "versions": versions}))
    return 0 if not any(line.startswith("dflash2-mlx") for line in unequal) else 1


if __name__ == "__main__":
    sys.exit(main())
