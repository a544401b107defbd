"""Runs `reload` from a path after the package has been imported."""

import runpy
import sys

sys.modules["keras_transformer"] = sys
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
