"""Write a folder for the user's own code: a module with a loss, the YAML that names it, a test, and how to use them."""

import sys
from importlib.util import find_spec
from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console

from vitlab.atomic_files import write_whole
from vitlab.errors import ConfigError
from vitlab.invocation import format_command, shorten_path
from vitlab.run.storage.output import output_folder

MODULE = '''"""Parts of my own for vitlab."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy


def poly_cross_entropy(logits: Tensor, target: Tensor, *, epsilon: float) -> Tensor:
    """Cross-entropy and ε(1 - p of the true class): Leng et al., 2022, arXiv:2204.12511, equation 6.
    (B, K) and (B,) -> (B,)"""
    p = logits.softmax(dim=1).gather(1, target[:, None])[:, 0]
    return cross_entropy(logits, target, reduction="none") + epsilon * (1 - p)
'''
LOSS = """# Cross-entropy with one more term of its Taylor series: Leng et al., 2022, arXiv:2204.12511
_target_: {name}.poly_cross_entropy
_partial_: true  # it is called later, with logits and targets
epsilon: 1.0
"""
TEST = """import torch
from {name} import poly_cross_entropy
from torch.nn.functional import cross_entropy


def test_without_the_term_it_is_the_cross_entropy():
    logits, target = torch.randn(4, 10), torch.arange(4)
    loss = poly_cross_entropy(logits, target, epsilon=0.0)
    torch.testing.assert_close(loss, cross_entropy(logits, target, reduction="none"))
"""
README = """# {name}

```bash
{train} --config-dir=conf loss=poly        # train with the loss of {name}.py
{evaluate} run=RUN 'trust=[{name}]'            # open such a run: say that you trust its code
python -m pytest                           # test it (pip install pytest)
```

`conf/` has the folders of vitlab's own configs: a YAML in `conf/loss/` is a choice of `loss=`, one in `conf/model/` of
`model=`, and a recipe lies in `conf/recipe/`.
"""


def new(cfg: DictConfig) -> Path:
    """Write the folder, and say how to go on. Raises ConfigError for a name that no module can have, and for a folder
    that is not empty."""
    name = Path(cfg.output).absolute().name
    check_module_name(name)
    output = output_folder(cfg.output, "new", Path(), overwrite=cfg.overwrite)
    words = {"name": name, **{command: format_command(command) for command in ("train", "evaluate")}}
    files = {f"{name}.py": MODULE, "conf/loss/poly.yaml": LOSS, f"test_{name}.py": TEST, "README.md": README}
    with output.make_folder() as folder:
        for file, text in files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            write_whole(folder / file, (text if text is MODULE else text.format(**words)).encode())
    console = Console(soft_wrap=True, highlight=False, markup=False)
    for file in files:
        console.print(f"{shorten_path(folder / file)}")
    console.print(
        f"train with it: cd {folder} && {format_command('train')} --config-dir=conf loss=poly trainer.max_epochs=2"
    )
    return folder


def check_module_name(name: str) -> None:
    """Raise ConfigError for what cannot be imported, or would hide what can be."""
    if not name.isidentifier() or name.startswith("_"):
        raise ConfigError(f"{name} cannot be the name of a Python module; use letters, digits and _, such as mylab")
    spec = find_spec(name)
    if name in sys.stdlib_module_names or (spec is not None and spec.origin is not None):
        raise ConfigError(f"{name} is the name of another Python module; choose another name")
