"""What the page of `dflash2-mlx serve` looks like: drives Chromium without a screen and writes pictures of it.

`python scripts/page_capture.py FOLDER` serves the bundled pair and writes PNGs for a phone and a desktop, light and
dark, there. `--url` takes a running server instead. Needs Chromium or Chrome, and nothing else.
"""

import argparse
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "server"))
from browser import Page, ask, browsing, chromium

SIZES = {"phone": (390, 844), "desktop": (1280, 800)}
QUESTION = "Write a Python function that reverses a string."
PATIENCE_S = 60
SAMPLE = """## A sample of everything

Some **bold**, some *emphasis*, `code` and a [link](https://example.org/a_(b)).
| Model | Context | Weights | Plain tok/s | Drafted tok/s |
|---|--:|--:|--:|--:|
| a target of 27B at 4 bits | 262,144 | 15.1 GB | 18.25 | 46.50 |
| a small one, `a|b` | 32,768 | 1,234.5 MB | 101.75 | 230.25 |

1. First, with code inside the item:
   ```python
   def greet(name: str) -> str:  # a comment
       return f"Hello, {name}" * 2
   ```
2. Second

> A quote, and in it
> ```sh
> echo "$HOME"  # copied without the mark
> ```

- [x] a task that is done
"""
TURNS = [
    {"role": "user", "content": "Show me a table, a list and some code."},
    {"role": "assistant", "content": SAMPLE, "reasoning": "They want one of each.", "thought": 2300},
]


@contextmanager
def serving() -> Iterator[str]:
    """The address of a server with the bundled pair."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["-m", "dflash2_mlx", "serve", "--model", "demo", "--port", str(port)]
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(PATIENCE_S * 10):
                time.sleep(0.1)
                with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/livez"):
                    break
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def capture(page: Page, url: str, folder: Path) -> None:
    page.size(*SIZES["desktop"])
    page.open(url)
    page.wait("document.querySelector('#server dl')", PATIENCE_S)
    take(page, folder, "empty")
    ask(page, QUESTION)
    page.wait("document.querySelector('.answer:not(.busy) .foot b')", PATIENCE_S)
    page.run("document.getElementById('colour').click()")
    take(page, folder, "answer")
    kept = json.dumps({"id": "sample", "title": "", "changed": 4e12, "turns": TURNS})
    page.run(f"localStorage.setItem('dflash2-mlx chat sample', {json.dumps(kept)})")
    page.run("sessionStorage.setItem('dflash2-mlx open', 'sample')")
    page.open(f"{url}/?sample")
    page.wait("document.querySelector('.text table') && document.querySelector('#server dl')")
    take(page, folder, "sample")
    page.run("document.getElementById('talk').scrollTop = 0; document.querySelector('summary').click()")
    take(page, folder, "sample-top")
    page.size(*SIZES["phone"])
    for button in ("panel", "list"):
        page.click(f"#{button}")
        page.picture(folder / f"phone-{button}.png")


def take(page: Page, folder: Path, name: str) -> None:
    """A picture for each size and scheme."""
    for size, (width, height) in SIZES.items():
        page.size(width, height)
        for scheme in ("light", "dark"):
            page.scheme(scheme)
            page.picture(folder / f"{name}-{size}-{scheme}.png")
    page.size(*SIZES["desktop"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the pictures go")
    parser.add_argument("--url", help="a running server, such as http://127.0.0.1:8000")
    asked = parser.parse_args()
    if not chromium():
        raise SystemExit("no browser was found. Install Chromium or Chrome.")
    asked.folder.mkdir(parents=True, exist_ok=True)
    served = nullcontext(asked.url) if asked.url else serving()
    with served as url, TemporaryDirectory(ignore_cleanup_errors=True) as profile, browsing(Path(profile)) as page:
        capture(page, url, asked.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
