"""Runs kt-export and kt-verify with flags, one list a line.

Prints each exit status, and then the heavy modules that were imported.
"""

import json
import sys

from savedmodel import export, verify

for line in sys.stdin:
    command, *argv = json.loads(line)
    try:
        {"export": export, "verify": verify}[command].main(argv)
    except SystemExit as status:
        print(status.code or 0, file=sys.stderr)
heavy = {"tensorflow", "keras", "onnx", "onnxruntime", "tf2onnx", "ctranslate2"}
print(sorted(heavy & set(sys.modules)), file=sys.stderr)
