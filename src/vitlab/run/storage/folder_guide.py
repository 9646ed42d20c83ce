"""Write README.md into the folder of a run: what each file in it is."""

from collections.abc import Sequence
from pathlib import Path

from vitlab.atomic_files import write_whole

FILES = {
    "config.yaml": "the config the run was trained with; `found` holds what was found in the data or measured",
    "provenance.json": "each start: time, command, versions, machine, git commit, digest of your own code",
    "metrics.csv": "every logged metric, a row for each logged step",
    "chain.jsonl": "digests of each state, the best model and the result, which `verify` compares",
    "result.json": "best score, metrics of the test, seconds of all starts, speed; written when the run has ended",
    "test_predictions.csv": "for each test image the true and the predicted class, its calibrated probability, and the "
    "loss, which is not calibrated; if `novelty` is above 1, `none_of_these` is yes",
    "test_per_class.csv": "for each class its test images, precision, recall and F1",
    "known_classes.safetensors": "what `predict` needs to tell images of none of the classes",
    "pretrained.csv": "what became of each tensor of the weights that the run started from",
    "checkpoints/best.ckpt": "the best model on the validation split",
    "checkpoints/latest.ckpt": "the state to resume from; `previous.ckpt` is the one before it",
    "checkpoints/step_*.ckpt": "states spread over the run, from which `verify` computes it again",
    "pictures/": "curves, a training batch, confusion matrix, worst predictions, what the model looks at",
    "test_image.*": "an image of the test split, for which the command below predicts the class",
    "train.log": "what was printed, with times, and the traceback if the run failed",
    **dict.fromkeys(("wandb/", "tensorboard/", "mlflow/"), "what a logger keeps here"),
    "evaluate/, predict/, report/": "written by these commands later, a folder for each call",
}
LATER = "evaluate/, predict/, report/"


def write_guide(folder: Path, title: str, commands: Sequence[str]) -> None:
    """Write the guide to what is there, with the commands that read the run."""
    there = {name: meaning for name, meaning in FILES.items() if name == LATER or any(folder.glob(name))}
    rows = [f"| `{name}` | {meaning} |" for name, meaning in there.items()]
    text = [f"# {title}", "", "| | |", "|---|---|", *rows, "", "```bash", *commands, "```", ""]
    write_whole(folder / "README.md", "\n".join(text).encode("utf-8", "backslashreplace"))
