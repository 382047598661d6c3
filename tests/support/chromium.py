"""A headless Chromium, driven over its own protocol through a pipe: pages as people see them, for tests and pictures."""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

COMMAND = "chromium"
QUIET = (
    "headless=new",
    "no-sandbox",
    "disable-gpu",
    "disable-dev-shm-usage",
    "disable-quic",
    "no-first-run",
    "disable-background-networking",
    "disable-component-update",
    "disable-extensions",
    "disable-sync",
    "hide-scrollbars",
    "mute-audio",
    "remote-debugging-pipe",
)
WITHIN_S = 30.0
_ABOVE = 10
"""Descriptors are kept above those that the browser expects."""
_CODES = {"Enter": ("\r", 13), "Tab": ("\t", 9)}


class BrowserError(Exception):
    """The browser, or a script in it, says no."""


class Chromium:
    """A browser of its own, for `with`; ``folder`` is where it keeps its things."""

    def __init__(self, folder: Path, command: str = COMMAND) -> None:
        text = shutil.which(command)
        if text is None:
            raise FileNotFoundError(command)
        (theirs_in, self._out), (self._in, theirs_out) = _pipe(), _pipe()
        arguments = [text, *(f"--{text}" for text in QUIET), f"--user-data-dir={folder}", "about:blank"]
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        moves = [
            (os.POSIX_SPAWN_DUP2, fd, to)
            for fd, to in ((null, 0), (null, 1), (null, 2), (theirs_in, 3), (theirs_out, 4))
        ]
        self._pid = os.posix_spawn(text, arguments, os.environ, file_actions=moves, setpgroup=0)
        for each in (null, theirs_in, theirs_out):
            os.close(each)
        self._rest, self._count = b"", 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._pages: dict[str, BrowserPage] = {}

    def page(
        self, url: str = "about:blank", *, width: int = 1400, height: int = 900, dark: bool = False
    ) -> "BrowserPage":
        """A page of that size, once it is loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = BrowserPage(self, session)
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call(
            "Emulation.setEmulatedMedia",
            features=[scheme, {"name": "prefers-reduced-motion", "value": "reduce"}],
        )
        page.navigate(url)
        return page

    def call(self, method: str, session: str = "", **given: Any) -> dict[str, Any]:
        """What the browser answers.

        Errors: BrowserError; TimeoutError.
        """
        self._count += 1
        number, asked = self._count, {"id": self._count, "method": method, "params": given}
        os.write(self._out, json.dumps(asked | ({"sessionId": session} if session else {})).encode() + b"\0")
        until = time.monotonic() + WITHIN_S
        while number not in self._answers:
            self.receive_event(until - time.monotonic())
        answer = self._answers.pop(number)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error'].get('message')}")
        result: dict[str, Any] = answer["result"]
        return result

    def receive_event(self, within_s: float) -> None:
        """Take in what the browser says next.

        Errors: TimeoutError; EOFError where it has ended.
        """
        if within_s <= 0 or not select.select([self._in], [], [], within_s)[0]:
            raise TimeoutError("the browser says nothing")
        piece = os.read(self._in, 1 << 20)
        if not piece:
            raise EOFError("the browser has ended")
        *texts, self._rest = (self._rest + piece).split(b"\0")
        for text in texts:
            result = json.loads(text)
            if "id" in result:
                self._answers[result["id"]] = result
            elif result.get("sessionId") in self._pages:
                self._pages[result["sessionId"]].handle_event(result["method"], result["params"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._out)
        os.close(self._in)
        os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


class BrowserPage:
    """A page: what is on it, what it asked for, what it complained of."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser, self._session = browser, session
        self.complaints: list[str] = []
        """Errors and warnings of scripts, of the console, of the network."""
        self.requests: list[str] = []
        """What was asked for, in order."""
        self._loads = 0

    def call(self, method: str, **given: Any) -> dict[str, Any]:
        """What the browser answers for this page."""
        return self._browser.call(method, self._session, **given)

    def handle_event(self, method: str, document: dict[str, Any]) -> None:
        """Take in what happened on the page."""
        if method == "Page.loadEventFired":
            self._loads += 1
        elif method == "Network.requestWillBeSent":
            self.requests.append(document["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(
                document["exceptionDetails"].get("exception", {}).get("description", "exception")
            )
        elif method == "Runtime.consoleAPICalled" and document["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(arg.get("value", "")) for arg in document["args"]))
        elif method == "Log.entryAdded" and document["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{document['entry']['text']} {document['entry'].get('url', '')}")

    def navigate(self, url: str) -> None:
        """Go there, until it is loaded."""
        loads = self._loads
        self.call("Page.navigate", url=url)
        until = time.monotonic() + WITHIN_S
        while self._loads == loads:
            self._browser.receive_event(until - time.monotonic())

    def resize(self, width: int, height: int) -> None:
        """Have so many pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def evaluate(self, expression: str) -> Any:
        """The value of an expression, after awaiting a promise.

        Errors: BrowserError where it throws.
        """
        document = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in document:
            raise BrowserError(
                document["exceptionDetails"].get("exception", {}).get("description", expression)
            )
        return document["result"].get("value")

    def wait(self, expression: str, within_s: float = WITHIN_S) -> None:
        """Come back once an expression is true.

        Errors: TimeoutError.
        """
        until = time.monotonic() + within_s
        while not self.evaluate(f"Boolean({expression})"):
            if time.monotonic() > until:
                raise TimeoutError(f"{expression} is not true after {within_s} s")
            time.sleep(0.05)

    def press(self, key: str, times: int = 1) -> None:
        """Press a key, by its name in scripts."""
        text, code = _CODES.get(key, (key if len(key) == 1 else "", ord(key.upper()) if len(key) == 1 else 0))
        document = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        for _ in range(times):
            self.call(
                "Input.dispatchKeyEvent", type="keyDown", **document, **({"text": text} if text else {})
            )
            self.call("Input.dispatchKeyEvent", type="keyUp", **document)

    def accessibility_nodes(self) -> list[tuple[str, str]]:
        """Role and name of every node of the accessibility tree."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            (each.get("role", {}).get("value", ""), each.get("name", {}).get("value", ""))
            for each in nodes
            if not each.get("ignored")
        ]

    def screenshot(self, *, whole: bool = False) -> bytes:
        """The page as PNG; ``whole``: with what lies below its edge."""
        document = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(document["data"])


def _pipe() -> tuple[int, int]:
    """Both ends, out of the way of the descriptors that the browser expects."""
    ends = os.pipe()
    moved = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for end in ends)
    for end in ends:
        os.close(end)
    return moved[0], moved[1]
