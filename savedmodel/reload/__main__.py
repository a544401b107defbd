"""Runs an export, as `python -I savedmodel/reload DIR`; see `__init__.py`."""

import importlib.util
import json
import pathlib
import sys
import types


def load_package() -> types.ModuleType:
    """Loads this folder as a package, whatever its name.

    Removes it from `sys.path`: some files have the names of packages that they
    import.
    """
    folder = pathlib.Path(__file__).resolve().parent
    sys.path = [p for p in sys.path if pathlib.Path(p).resolve() != folder]
    spec = importlib.util.spec_from_file_location(
        "copied_reload", folder / "__init__.py"
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"expected __init__.py in {folder}")
    package = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    return package


def main() -> None:
    reload = load_package()
    directory = reload.find_export(sys.argv[1])
    sentences = json.load(sys.stdin)
    description = json.loads((directory / reload.DESCRIPTION).read_text())
    if sys.argv[2:]:
        description["decoding"]["beam_size"] = int(sys.argv[2])
    translate = reload.load(directory, description)
    translations = reload.translate_all(translate, sentences)
    ours = {name.split(".")[0] for name in sys.modules}
    if ours & {"keras_transformer", "savedmodel"}:
        raise SystemExit("an export must run without this package")
    found = {
        "translations": translations,
        "computed_in": getattr(translate, "computed_in", None),
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
