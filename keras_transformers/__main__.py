"""The command `keras-transformers NAME ...`: recipes, and what asks or compares their models.

An installed package has the recipes inside; in a clone they are beside it. `python -m
recipes.NAME`, in a clone, is the same.
"""

import ast
import pathlib
import runpy
import sys

from keras_transformers.core.imports import advice

COMMAND = "keras-transformers"
RECIPES = (
    *("translation", "recurrent_translation", "language_model", "masked_language_model"),
    *("text_classification", "vit", "swin", "mae", "detr", "picture_text", "mixers"),
)
TOOLS = ("predict", "demo", "compare", "clean_pairs", "back_translate", "translate_files")
NAMES = (*RECIPES, *TOOLS)


def find() -> tuple[pathlib.Path, str]:
    """Folder and name of the package of the recipes.

    Raises:
        SystemExit: If they are neither inside this package nor beside it.
    """
    here = pathlib.Path(__file__).parent
    if (here / "recipes").is_dir():
        return here / "recipes", f"{__package__}.recipes"
    if (here.parent / "recipes" / "translation.py").is_file():
        return here.parent / "recipes", "recipes"
    raise SystemExit(f"{COMMAND}: this installation of keras_transformers has no recipes.")


def overview(folder: pathlib.Path) -> str:
    """What can be called, with the first line of what each file says of itself."""
    lines = [f"usage: {COMMAND} NAME [options]", "", "options of each: NAME --help", ""]
    for name in NAMES:
        text = (folder / f"{name}.py").read_text(encoding="utf-8")
        about = ast.get_docstring(ast.parse(text)) or ""
        lines.append(f"  {name:22} {about.splitlines()[0]}")
    return "\n".join(lines)


def main() -> None:
    """Runs the recipe that the first argument names with the others."""
    name, *options = sys.argv[1:] or ["--help"]
    folder, package = find()
    if name in ("-h", "--help"):
        print(overview(folder))
        return
    if name.replace("-", "_") not in NAMES:
        raise SystemExit(f"{COMMAND}: there is no {name}; there are {', '.join(NAMES)}.")
    if package == "recipes":  # of this clone, whatever else is called so
        sys.path.insert(0, str(folder.parent))
    sys.argv = [f"{COMMAND} {name}", *options]
    try:
        runpy.run_module(f"{package}.{name.replace('-', '_')}", run_name="__main__")
    except ModuleNotFoundError as error:
        said = advice(error)
        if said is None:
            raise
        raise SystemExit(f"{COMMAND} {name}: {said}") from None


if __name__ == "__main__":
    main()
