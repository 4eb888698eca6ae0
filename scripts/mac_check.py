"""What only a real Mac can tell: does drafting change the text, which block size is best, how fast is it.

`scripts/mac_check` installs everything and runs this; `python scripts/mac_check.py --model demo --quick` takes a minute
anywhere. Asks `dflash2-mlx doctor`, then `bench check`, `bench sweep` and `bench run`, and gathers their reports in
mac_check.md and mac_check.json, made to be pasted into an issue. Exit 1 where a text differs by more than rounding, or
where the pair does not fit.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from dflash2_mlx import __version__

WORKLOADS = ("-w", "short-chat", "-w", "long-code", "-w", "maths", "-w", "chinese")
STEPS = {
    "check": ("--max-tokens", "64", "-w", "json-tools", *WORKLOADS),
    "sweep": ("--quick", *WORKLOADS),
    "run": ("--length", "128", *WORKLOADS),
}
QUICK = {
    "check": ("--max-tokens", "24", "--context", "300", "--seeds", "1", "-w", "short-chat"),
    "sweep": ("--quick", "-w", "short-chat"),
    "run": ("--quick", "-w", "short-chat", "-w", "long-code"),
}


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`dflash2-mlx ARGUMENTS`; stderr goes to the terminal."""
    words = [sys.executable, "-m", "dflash2_mlx", *arguments]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True)


def examine(names: list[str]) -> tuple[dict[str, object], str, bool]:
    """Doctor's document and words without the cache's place, and whether the pair can run."""
    told, document = command("doctor", *names), command("doctor", *names, "--json")
    content = json.loads(document.stdout) if document.stdout else {}
    content.get("machine", {}).pop("cache_folder", None)
    words = "\n".join(line for line in told.stdout.splitlines() if not line.startswith("cache "))
    return content, words, document.returncode == 0


def to_fetch(document: dict[str, object]) -> bool:
    """Whether a part of the pair is not on this machine."""
    pair = document.get("pair")
    return isinstance(pair, dict) and bool(pair.get("todo"))


def measure(names: list[str], steps: dict[str, tuple[str, ...]]) -> tuple[dict[str, object], list[str], bool]:
    """Documents by step, the reports as Markdown, and whether every step ended well."""
    documents, texts, good = dict[str, object](), list[str](), True
    for step, words in steps.items():
        print(f"\nbench {step}", flush=True)
        with TemporaryDirectory() as folder:
            done = command("bench", step, *names, *words, "--report", folder)
            report = Path(folder) / "report.md"
            good &= done.returncode == 0
            if report.exists():
                lines = report.read_text(encoding="utf-8").splitlines()
                texts.append("\n".join(line for line in lines if not line.startswith("![")))
                documents[step] = json.loads((Path(folder) / "report.json").read_text(encoding="utf-8"))
    return documents, texts, good


def write(report: dict[str, object], parts: list[str], folder: Path) -> None:
    """Both files, without the owner's home in them."""
    folder.mkdir(parents=True, exist_ok=True)
    home, files = str(Path.home()), {"md": "\n\n".join(parts) + "\n", "json": json.dumps(report, ensure_ascii=False)}
    for ending, text in files.items():
        (folder / f"mac_check.{ending}").write_text(text.replace(home, "~"), encoding="utf-8")
    print(f"\nWritten to {folder / 'mac_check.md'} and mac_check.json: please paste both into an issue.")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen3.8-27b", help="alias, folder or repository id (default qwen3.8-27b)")
    parser.add_argument("--draft", help="drafter, where none is known for the model")
    parser.add_argument("--quick", action="store_true", help="one kind of text, short answers, two repeats")
    parser.add_argument("--output", type=Path, default=Path(), help="folder of the report (default: here)")
    parser.add_argument("--force", action="store_true", help="run although doctor says no")
    return parser.parse_args()


def main() -> int:
    asked = arguments()
    drafter = ["--draft", asked.draft] if asked.draft else []
    document, words, able = examine([asked.model, *drafter])
    if able and to_fetch(document):
        if command("pull", asked.model).returncode:
            return 1
        document, words, able = examine([asked.model, *drafter])
    print(words, flush=True)
    when = time.strftime("%Y-%m-%d %H:%M")
    report: dict[str, object] = {"model": asked.model, "version": __version__, "date": when, "doctor": document}
    parts = [f"# mac_check: {asked.model}\n\ndflash2-mlx {__version__}, {when}\n\n```\n{words}\n```"]
    good = False
    if able or asked.force:
        documents, texts, good = measure(["--model", asked.model, *drafter], QUICK if asked.quick else STEPS)
        report, parts = {**report, **documents}, [*parts, *texts]
    write(report, parts, asked.output)
    if not able:
        print("mac_check: doctor says no, see above. --force runs all the same.", file=sys.stderr)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
