"""Runs `reload`, given by its path, where the package has been imported."""

import runpy
import sys

sys.modules["keras_transformer"] = sys
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
