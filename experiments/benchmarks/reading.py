"""How well lines of digits and numbers in words are read: three seeds with their intervals, lengths that were never
seen, and kinds of positions. What is lost without 1/√d, mask or positions is told by curves_of_studies.py.

    python experiments/benchmarks/reading.py            # everything, into experiments/benchmarks/reading.md
    python experiments/benchmarks/reading.py lines      # of: lines, positions, words
    python experiments/benchmarks/reading.py lines --seeds 1 --also data.source.num_lines=200 --out lines.md

Run it alone on the machine. A run that is there already, below runs/reading, is not done again. --also gives overrides
to every training.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from vitlab.reports.intervals import half_width

ROOT = Path(__file__).resolve().parents[2]
RUNS = Path("runs/reading")
SEEDS, ALSO = [0, 1, 2], list[str]()  # as the command line says
LINES, WORDS = ["recipe=digit_lines"], ["recipe=number_words"]
LONGER = ["+data.source.min_length=9", "+data.source.max_length=12"]
WIDE = "model.encoder.image_size=[16,128]"  # a row for each of 16 columns, stretched over a line; else there were 2
POSITIONS = {
    "rotary encoder, learned decoder": [],
    "rotary encoder, fixed decoder": ["model.decoder.position=sincos_1d", "model.decoder.scale_embedding=true"],
    "rotary encoder and decoder": ["model.decoder.position=rotary_1d"],
    "learned encoder and decoder": ["model.encoder.position=learned_2d", WIDE],
    "fixed encoder and decoder": [
        *["model.encoder.position=sincos_2d", WIDE],
        *["model.decoder.position=sincos_1d", "model.decoder.scale_embedding=true"],
    ],
}


def command(entry: str, *words: str) -> None:
    print(f"$ python src/{entry}.py {' '.join(words)}", flush=True)
    subprocess.run([sys.executable, str(ROOT / "src" / f"{entry}.py"), *words], check=True, stdout=subprocess.DEVNULL)


def trained(name: str, seed: int, options: Sequence[str]) -> tuple[Path, float]:
    """A run, and the minutes that all of it took."""
    folder = RUNS / f"{name.replace(' ', '_').replace('/', '').replace(',', '')}_{seed}"
    if not (folder / "result.json").is_file():
        started = time.time()
        command("train", *options, *ALSO, f"seed={seed}", f"hydra.run.dir={folder}", "trainer=cpu", "logger=none")
        (folder / "minutes.txt").write_text(str((time.time() - started) / 60))
    return folder, float((folder / "minutes.txt").read_text())


def tested(folder: Path) -> float:
    return json.loads((folder / "result.json").read_text())["test"]["test/exact"]


def longer(folder: Path) -> float:
    """Of lines of 9 to 12 digits, by a model that has seen 8 at most."""
    output = folder.with_name(f"{folder.name}_longer")
    if not (output / "evaluation_test.json").is_file():
        command("evaluate", f"run={folder}", *LONGER, f"output={output}")
    return json.loads((output / "evaluation_test.json").read_text())["test/exact"]


def told(values: Sequence[float]) -> str:
    """A mean in % with its 95 % interval, and the values."""
    each = ", ".join(f"{100 * value:.2f}" for value in values)
    return f"{100 * mean(values):.2f} ± {100 * half_width(values):.2f} | {each}"


def lines() -> list[str]:
    runs = [trained("lines", seed, LINES) for seed in SEEDS]
    rows = ["## Lines of digits", "", "| test lines | exact match, % | each seed |", "|---|---|---|"]
    rows.append(f"| 1 to 8 digits | {told([tested(folder) for folder, _ in runs])} |")
    rows.append(f"| 9 to 12, unseen | {told([longer(folder) for folder, _ in runs])} |")
    return [*rows, "", f"Training and test: {', '.join(f'{minutes:.1f}' for _, minutes in runs)} minutes."]


def positions() -> list[str]:
    rows = [
        "## Positions",
        "",
        "| positions | 1 to 8 digits, % | each seed | 9 to 12, % | each seed |",
        "|---|---|---|---|---|",
    ]
    for name, options in POSITIONS.items():
        runs = [trained(f"lines {name}" if options else "lines", seed, [*LINES, *options])[0] for seed in SEEDS]
        rows.append(f"| {name} | {told([tested(run) for run in runs])} | {told([longer(run) for run in runs])} |")
    return rows


def words() -> list[str]:
    runs = [trained("words", seed, WORDS) for seed in SEEDS]
    rows = ["## Numbers in words", "", "| | exact match, % | each seed |", "|---|---|---|"]
    rows.append(f"| test numbers | {told([tested(folder) for folder, _ in runs])} |")
    return [*rows, "", f"Training and test: {', '.join(f'{minutes:.1f}' for _, minutes in runs)} minutes."]


PARTS = {"lines": lines, "positions": positions, "words": words}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--also", nargs="+", default=[])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    arguments = parser.parse_args()
    SEEDS[:], ALSO[:] = range(arguments.seeds), arguments.also
    said = [line for name in arguments.parts for line in [*PARTS[name](), ""]]
    seeds = ", ".join(map(str, SEEDS))
    text = "\n".join([f"{time.strftime('%Y-%m-%d')}, 95 % intervals by Student's t over seeds {seeds}.", "", *said])
    arguments.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
