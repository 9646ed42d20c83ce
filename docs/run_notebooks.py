"""Run the notebooks of docs and keep what their cells give: python docs/run_notebooks.py [NOTEBOOK …]

They run in this process, in a folder of their own, so that nothing but the environment of `make setup` is needed.
"""

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.figure import Figure

NOTEBOOKS = sorted(Path(__file__).parent.glob("*.ipynb"))


def run(notebook: Path) -> dict[str, Any]:
    """The notebook with what its cells give now: what they print, the value of a last expression, and pictures."""
    content = json.loads(notebook.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    code = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(code, start=1):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            value = value_of("".join(cell["source"]), names, f"{notebook.stem}, cell {number}")
        figures = [pyplot.figure(place) for place in pyplot.get_fignums()]
        figures += [value] if isinstance(value, Figure) and value not in figures else []
        cell["execution_count"] = number
        cell["outputs"] = stream(printed.getvalue().replace(os.getcwd(), "."))
        if value is not None and not figures:
            data = {"text/plain": lines(repr(value))}
            cell["outputs"].append(
                {"output_type": "execute_result", "execution_count": number, "data": data, "metadata": {}}
            )
        cell["outputs"] += [picture(figure) for figure in figures]
        pyplot.close("all")
    return content


def value_of(source: str, names: dict[str, Any], name: str) -> Any:
    """Run the statements of a cell; the value of its last one, if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), name, "eval"), names)


def stream(text: str) -> list[dict[str, Any]]:
    return [{"output_type": "stream", "name": "stdout", "text": lines(text)}] if text else []


def picture(figure: Figure) -> dict[str, Any]:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=72, bbox_inches="tight")
    data = {"image/png": base64.b64encode(content.getvalue()).decode(), "text/plain": ["<Figure>"]}
    return {"output_type": "display_data", "data": data, "metadata": {}}


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    for path in [Path(name).resolve() for name in sys.argv[1:]] or NOTEBOOKS:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            content = run(path)
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(path.name)
