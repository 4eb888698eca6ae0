"""Headless Chromium by its DevTools protocol over two pipes: no driver, no web socket, no package."""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAMES = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
_SWITCHES = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--hide-scrollbars", "--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe"),
)


def chromium() -> str | None:
    """Where a browser that speaks the protocol is."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One tab. What a person does, and what they see."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing, self._numbers = reading, writing, itertools.count(1)
        self._buffer, self._session = b"", ""
        self.errors: list[str] = []  # of scripts, and what the content policy forbade
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict:
        """The result of one command."""
        number = next(self._numbers)
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": number, "method": method, "params": parameters, **session}
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._receive()
            if reply.get("id") == number:
                assert "error" not in reply, (method, reply["error"])
                return reply["result"]
            self._note(reply)

    def _receive(self, seconds: float = 30.0) -> dict:
        while b"\0" not in self._buffer:
            assert select.select([self._reading], [], [], seconds)[0], "the browser said nothing"
            piece = os.read(self._reading, 1 << 20)
            assert piece, "the browser ended"
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict) -> None:
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(event["params"]["exceptionDetails"])[:500])
        if event.get("method") == "Log.entryAdded" and event["params"]["entry"]["source"] in ("security", "javascript"):
            self.errors.append(event["params"]["entry"]["text"])

    def run(self, expression: str) -> object:
        """The value of a JavaScript expression; a promise is awaited."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, expression: str, seconds: float = 15.0) -> None:
        """Until `expression` is true."""
        deadline = time.monotonic() + seconds
        while not self.run(f"Boolean({expression})"):
            assert time.monotonic() < deadline, f"{expression} did not come true: {self.run('document.body.innerText')}"
            time.sleep(0.02)

    def text(self, selector: str) -> str:
        """What is to be read in the first element that fits."""
        return str(self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def size(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def scheme(self, name: str) -> None:
        """`light` or `dark`."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def click(self, selector: str) -> None:
        """A click in the middle of the element, wherever that is; covered or hidden ones are not hit."""
        place = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'nearest'});"
            " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2, r.width] })()"
        )
        assert isinstance(place, list) and place[2], f"{selector} is not to be seen"
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def type(self, text: str) -> None:
        """Text into whatever has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """A key by its name, such as Enter or Escape."""
        code = {"Enter": 13, "Escape": 27, "Tab": 9}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def picture(self, path: Path) -> None:
        """What is on the screen, as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


def ask(page: Page, text: str) -> None:
    """Type a message into the page and send it."""
    page.click("#message")
    page.type(text)
    page.press("Enter")


@contextmanager
def browsing(folder: Path) -> Iterator[Page]:
    """A browser whose profile is kept in `folder`, with one page."""
    found = chromium()
    assert found
    to_browser, writing = os.pipe()
    reading, from_browser = os.pipe()

    def as_three_and_four() -> None:  # the descriptors that the browser reads and writes
        first, second = os.dup(to_browser), os.dup(from_browser)
        os.dup2(first, 3)
        os.dup2(second, 4)

    process = subprocess.Popen(
        [found, *_SWITCHES, f"--user-data-dir={folder}"],
        preexec_fn=as_three_and_four,
        pass_fds=(3, 4),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Page(reading, writing)
    finally:
        os.close(writing)
        os.close(reading)
        process.terminate()
        process.wait(10)
