"""Draws docs/server_page.png and docs/attention_page.png.

    PYTHONPATH=. python docs/site/pictures.py

The package's model translates. It needs Chromium and the extra `test`.
"""

import contextlib
import io
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.parse

from PIL import Image

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests"))
import browser  # noqa: E402

LANGUAGES = {"from": "en", "to": "de"}
SENTENCE = "Click Save to store the file on your computer."
TEXT = f"{SENTENCE} The battery of the temperature sensor is almost empty."


def main():
    with tempfile.TemporaryDirectory() as folder:
        chromium = browser.Browser(f"{folder}/profile", 1100, 735)
        with contextlib.closing(chromium):
            draw_server(chromium)
            draw_attention(chromium, pathlib.Path(folder, "attention.html"))


def draw_server(chromium):
    """Types the text, and points at a word of its translation."""
    command = [sys.executable, "-m", "trainers.serve", "--port=0"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            address = re.search(r"listening at (\S+),", next(process.stdout))[1]
            if "ready\n" not in process.stdout:
                raise RuntimeError("the server did not become ready")
            # The field of the text is empty, so that typing begins there.
            chromium.visit(f"{address}#{urllib.parse.urlencode(LANGUAGES)}")
            chromium.wait("document.querySelector('#to').value === 'de'")
            chromium.evaluate("document.querySelector('#source').focus()")
            chromium.type(TEXT)
            word = "#result [data-word='3']"
            chromium.wait(
                f'document.querySelector("{word}")'
                " && !document.querySelector('.stale')"
            )
            chromium.click(word)  # shows the alternatives of its sentence
            chromium.evaluate("scrollTo(0, 0)")
            save(chromium, "server_page.png")
        finally:
            process.terminate()


def draw_attention(chromium, path):
    """Shows what the last layer of the decoder reads of the source."""
    command = [sys.executable, "-m", "trainers.visualize"]
    command += [
        "--target_language=de",
        f"--output={path}",
        f"--text={SENTENCE}",
    ]
    subprocess.run(command, cwd=ROOT, check=True)
    chromium.leave()
    chromium.resize(1200, 720)
    chromium.open(path, "kind=cross&view=lines")
    save(chromium, "attention_page.png")


def save(chromium, name):
    picture = Image.open(io.BytesIO(chromium.picture()))
    colors = picture.convert("RGB").quantize(128)
    colors.save(ROOT / "docs" / name, optimize=True)


if __name__ == "__main__":
    main()
