"""A headless Chromium, driven over its DevTools protocol by a pipe.

It needs only Chromium: no driver, no package, no port. See
https://chromedevtools.github.io/devtools-protocol for the commands.
"""

import base64
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",  # root cannot have one
    "--disable-gpu",
    "--blink-settings=availableHoverTypes=2,primaryHoverType=2",  # a mouse
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--remote-debugging-pipe",
)
KEYS = {"Enter": "\r", " ": " "}  # keys that also type a character
ARROWS = ("ArrowLeft", "ArrowUp", "ArrowRight", "ArrowDown")
CODES = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32} | {
    key: 35 + i for i, key in enumerate(("End", "Home", *ARROWS))
}


class Browser:
    """One page of a running browser.

    Args:
        profile: An empty directory for Chromium's profile.
        width, height: The size of the window, in pixels.

    Attributes:
        requests: Addresses that pages have requested.
        errors: Exceptions that the pages' scripts did not catch, and requests
            that the pages' policies blocked.
    """

    def __init__(self, profile, width=1280, height=900):
        program = next(filter(None, map(shutil.which, NAMES)), None)
        assert program, f"none of {', '.join(NAMES)} is installed"
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        # Chromium reads from file 3 and writes to file 4.
        script = f'exec "$0" "$@" 3<&{commands} 4>&{answers}'
        self._process = subprocess.Popen(
            [
                *("bash", "-c", script, program, *FLAGS),
                f"--user-data-dir={profile}",
                f"--window-size={width},{height}",
                "about:blank",
            ],
            pass_fds=(commands, answers),
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._numbers = itertools.count(1)
        self._buffer = b""
        self._session = None
        self.requests, self.errors = [], []
        targets = self._call("Target.getTargets")["targetInfos"]
        page = next(t for t in targets if t["type"] == "page")
        self._session = self._call(
            "Target.attachToTarget", targetId=page["targetId"], flatten=True
        )["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self._call(f"{domain}.enable")
        self.resize(width, height)

    def resize(self, width, height, scale=1):
        """Sets the visible size of the page, in pixels."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )

    def open(self, path, hash=""):
        """Opens a file in a new page, and waits until it is complete."""
        end = f"#{hash}" if hash else ""
        self.visit(pathlib.Path(path).as_uri() + end)

    def visit(self, address):
        """Opens an address in a new page, and waits until it is complete."""
        self._call("Page.navigate", url="about:blank")
        self.requests.clear()
        self._call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def touch(self, on):
        """Makes the page believe that it has a touch screen and no mouse."""
        self._call("Emulation.setTouchEmulationEnabled", enabled=on)

    def type(self, text):
        """Types a text at the cursor."""
        self._call("Input.insertText", text=text)

    def prefer(self, scheme):
        """Sets the color scheme: light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", features=features)

    def evaluate(self, expression):
        """Returns the value of a JavaScript expression."""
        found = self._call(
            "Runtime.evaluate",
            expression=expression,
            returnByValue=True,
            awaitPromise=True,
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, expression, seconds=600):
        """Waits until an expression is true."""
        deadline = time.monotonic() + seconds
        while not self.evaluate(expression):
            assert time.monotonic() < deadline, expression
            time.sleep(0.02)

    def point(self, selector):
        """Moves the mouse to the middle of an element. Returns (x, y)."""
        self.evaluate(
            f"document.querySelector({json.dumps(selector)})"
            ".scrollIntoView({block: 'center', behavior: 'instant'})"
        )
        box = self.evaluate(
            f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])"
            f"(document.querySelector({json.dumps(selector)})"
            ".getBoundingClientRect())"
        )
        self._mouse("mouseMoved", *box)
        return box

    def click(self, selector, times=1):
        """Clicks an element one or more times."""
        place = self.point(selector)
        for count in range(1, times + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self._mouse(kind, *place, button="left", clickCount=count)

    def allow(self, *permissions):
        """Gives the pages permissions, by their names in the protocol."""
        self._call(
            "Browser.grantPermissions",
            of_page=False,
            permissions=list(permissions),
        )

    def download_to(self, folder):
        """Sets the folder of downloaded files."""
        self._call(
            "Browser.setDownloadBehavior",
            of_page=False,
            behavior="allow",
            downloadPath=str(folder),
        )

    def leave(self):
        """Moves the mouse away."""
        self._mouse("mouseMoved", 1, 1)

    def press(self, *keys):
        """Presses keys, one after the other."""
        for key in keys:
            text = KEYS.get(key)
            shared = {
                "key": key,
                "code": "Space" if key == " " else key,
                "windowsVirtualKeyCode": CODES[key],
            }
            down = {"text": text} if text else {}
            kind = "keyDown" if text else "rawKeyDown"
            self._call("Input.dispatchKeyEvent", type=kind, **shared, **down)
            self._call("Input.dispatchKeyEvent", type="keyUp", **shared)

    def picture(self):
        """Returns the visible page as a PNG file."""
        return base64.b64decode(self._call("Page.captureScreenshot")["data"])

    def close(self):
        self._call("Browser.close", of_page=False)
        self._process.wait()
        os.close(self._commands)
        os.close(self._answers)

    def _mouse(self, kind, x, y, **more):
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def _call(self, method, of_page=True, **parameters):
        """Sends a command, and returns its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session and of_page:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._note(answer)

    def _read(self):
        """Returns the next message."""
        while b"\0" not in self._buffer:
            found = os.read(self._answers, 1 << 16)
            assert found, "the browser has ended"
            self._buffer += found
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event):
        """Records a request or an error of a page."""
        parameters = event.get("params", {})
        if event["method"] == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif event["method"] == "Runtime.exceptionThrown":
            self.errors.append(str(parameters["exceptionDetails"]))
        elif event["method"] == "Log.entryAdded":
            entry = parameters["entry"]
            if entry["level"] == "error":
                self.errors.append(entry["text"])


def text(page, selector):
    """Returns the text of an element."""
    return page.evaluate(f"document.querySelector('{selector}').textContent")


def texts(page, selector):
    """Returns the texts of all elements that a selector finds."""
    return page.evaluate(
        f"[...document.querySelectorAll('{selector}')]"
        ".map((node) => node.textContent)"
    )
