"""Compare finished runs: which recipe is better, how sure that is, and on which samples two models differ."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console

from vitlab.atomic_files import write_csv, write_whole
from vitlab.config.found import OPEN_KEYS
from vitlab.config.stored_config import is_machine_key
from vitlab.errors import ConfigError, VitlabError
from vitlab.programs.sweeps import find_sweep
from vitlab.reports.comparison import Pair, Recipe, choose_metric, is_run_key, list_seeds
from vitlab.reports.comparison import compare as compare_recipes
from vitlab.reports.comparison_tables import differences, find_differing_settings, list_samples, means
from vitlab.reports.finished import FinishedRun, read_run
from vitlab.reports.tables import build_table, format_latex, format_markdown
from vitlab.run.storage.output import RUNS, output_folder
from vitlab.verification.seal import describe_seals

PICTURED = 6  # samples of a kind that are drawn: both models are right, one of them alone, or neither
MOST_WRITTEN = 100  # rows of a table in comparison.md
MOST_ROWS = 10  # rows of a table that is printed
PRINTED = ("recipe", "metric", "seeds", "mean", "student_low", "student_high")


def compare(cfg: DictConfig) -> list[Pair]:
    """Print which recipe is better, and write sentences and tables to a folder. Raises VitlabError for runs that cannot
    be compared."""
    place = output_folder(cfg.output, "compare", RUNS / "compare", overwrite=cfg.overwrite)
    recipes, notes = find_recipes(cfg)
    metric, told = (cfg.metric, []) if cfg.metric else choose_metric(recipes)
    notes += told
    metric = metric if "/" in metric else f"test/{metric}"
    pairs = compare_recipes(recipes, metric)
    notes += describe_seals(run.folder for recipe in recipes for run in recipe.runs.values())
    notes += dict.fromkeys(note for pair in pairs for note in notes_on(pair))
    sentences = [pair.sentence() for pair in sorted(pairs, key=lambda pair: -abs(pair.gain))]
    settings = [row for row in find_differing_settings(recipes) if not is_machine_key(row["key"])]
    tables = {"means": means(recipes), "differences": differences(pairs), "settings": settings}
    if len(pairs) == 1:
        tables["samples"] = list_samples(pairs[0])
    with place.make_folder() as folder:
        write(folder, sentences + notes, tables)
        pictures = draw_samples(folder, recipes, tables.get("samples", []))
        show(folder, sentences + notes, tables, pictures)
    return pairs


def find_recipes(cfg: DictConfig) -> tuple[list[Recipe], list[str]]:
    """Read the runs of runs=, sweep= or study=, and sort them by recipe; return what was left out, too. Raises
    ConfigError where nothing, or too little, is named, and CheckpointError for runs that are not finished."""
    notes: list[str] = []
    chosen = find_chosen_key(cfg, "compare")
    if chosen == "runs":
        recipes = group_by_settings([read_chosen(Path(str(run))) for run in cfg.runs])
    else:
        recipes, notes = group_sweep_jobs(str(cfg.sweep or cfg.study), cfg.by)
    if len(recipes) < 2:
        have = f"{recipes[0].label} with {list_seeds(recipes[0])}" if recipes else "none"
        raise ConfigError(f"{chosen}= names only one recipe ({have}); add another one to compare")
    return recipes, notes


def find_chosen_key(cfg: DictConfig, purpose: str) -> str:
    """Return which of runs=, sweep= and study= is set. Raises ConfigError unless one of them is, and for by= that has
    no use."""
    chosen = [key for key in ("runs", "sweep", "study") if cfg[key] is not None]
    if len(chosen) != 1:
        raise ConfigError(f"nothing to {purpose}; give one of runs=[A,B], sweep=NAME or study=NAME")
    if chosen == ["runs"] and cfg.by is not None:
        raise ConfigError("by= needs sweep= or study=; leave it out with runs=")
    return chosen[0]


def read_chosen(folder: Path) -> FinishedRun:
    """Read a run with the settings that were chosen for it, without values found in its data, which follow the seed
    where that decides which images are trained on."""
    run = read_run(folder)
    found = {key: f"found.{key}" for key in OPEN_KEYS if f"found.{key}" in run.settings}
    left_out = {*found.values(), *(OPEN_KEYS[key] for key in found)}
    return replace(run, settings={key: value for key, value in run.settings.items() if key not in left_out})


def list_settings(run: FinishedRun) -> tuple[tuple[str, str], ...]:
    """List the settings of a run's recipe: all but its name, its seeds, and those of the machine."""
    own = {key: value for key, value in run.settings.items() if not (is_run_key(key) or is_machine_key(key))}
    return tuple(sorted((key, str(value)) for key, value in own.items()))


def group_by_settings(runs: Sequence[FinishedRun]) -> list[Recipe]:
    """Put runs together that differ in their seed alone. Raises ConfigError for one that is named twice."""
    groups: dict[tuple[tuple[str, str], ...], dict[int, FinishedRun]] = {}
    for run in runs:
        group = groups.setdefault(list_settings(run), {})
        if run.seed in group:
            both = f"{group[run.seed].folder} and {run.folder}"
            raise ConfigError(f"{both} are the same recipe with seed {run.seed}; leave one out")
        group[run.seed] = run
    found = list(groups.values())
    firsts = [next(iter(group.values())) for group in found]
    for names in ([str(run.settings["name"]) for run in firsts], [run.folder.name for run in firsts]):
        if len(set(names)) == len(names):
            break
    else:
        names = [str(run.folder) for run in firsts]
    return [Recipe(name, group) for name, group in zip(names, found, strict=True)]


def group_sweep_jobs(name: str, by: str | None) -> tuple[list[Recipe], list[str]]:
    """Sort the jobs of a sweep that are done by the key `by`, or by all that varies but the seed."""
    sweep = find_sweep(name)
    states, jobs = sweep.states(), sweep.jobs()
    done = [job for job in jobs if states[job.name].status == "done"]
    varied = [key for key in dict.fromkeys(k for job in jobs for k in job.values) if key != "seed"]
    varied = [key for key in varied if len({job.values.get(key) for job in jobs}) > 1]
    if by is not None and by not in varied:
        others = ", ".join(varied) or "the seed alone"
        raise ConfigError(f"by={by} does not vary in {sweep.path}; these keys vary: {others}")
    groups: dict[str, dict[int, FinishedRun]] = {}
    for job in done:
        label = ", ".join(f"{key}={job.values.get(key)}" for key in ([by] if by else varied)) or sweep.path.name
        run = read_chosen(sweep.path / job.name)
        if run.seed in groups.setdefault(label, {}):
            raise ConfigError(
                f"several jobs of {sweep.path} have {label} and seed {run.seed}, since more varies than by={by}; "
                "leave by= out"
            )
        groups[label][run.seed] = run
    missing = len(jobs) - len(done)
    notes = [f"{missing} of the {len(jobs)} jobs are not done, and are left out."] if missing else []
    return [Recipe(label, runs) for label, runs in groups.items()], notes


def notes_on(pair: Pair) -> list[str]:
    """Say which seeds of a pair are left out, since the other recipe lacks them, and whose samples are missing."""
    common = pair.first.runs.keys() & pair.second.runs.keys()
    every = [*pair.first.runs.values(), *pair.second.runs.values()]
    without = [str(run.folder) for run in every if not run.samples]
    missing = f"Samples are not compared: {', '.join(without)} has no test_predictions.csv with classes."
    return [missing] * (0 < len(without) < len(every)) + [
        f"{one.label}: seed {', '.join(map(str, sorted(extra)))} left out, which {other.label} does not have."
        for one, other in ((pair.first, pair.second), (pair.second, pair.first))
        if common and (extra := one.runs.keys() - common)
    ]


def write(folder: Path, sentences: list[str], tables: dict[str, list[dict[str, Any]]]) -> None:
    """Write comparison.md with all, and each table as CSV and LaTeX."""
    parts = ["# Comparison", *sentences]
    for name, rows in tables.items():
        parts += [f"## {name.capitalize()}", format_markdown(rows[:MOST_WRITTEN]) if rows else "None."]
        if len(rows) > MOST_WRITTEN:
            parts.append(f"The first {MOST_WRITTEN} of {len(rows):,}; {name}.csv contains all.")
        if rows:
            columns = list(dict.fromkeys(key for row in rows for key in row))
            write_csv(folder / f"{name}.csv", columns, [[row.get(key) for key in columns] for row in rows])
            write_whole(folder / f"{name}.tex", format_latex(rows).encode("utf-8"))
    write_whole(folder / "comparison.md", ("\n\n".join(parts) + "\n").encode("utf-8"))


def draw_samples(folder: Path, recipes: Sequence[Recipe], rows: Sequence[dict[str, Any]]) -> Path | None:
    """Draw test samples on which one of two models alone is right, neither, and both; None where there are none, or
    their images cannot be read any more."""
    if not rows:
        return None
    from vitlab.callbacks.figures import image_grid, write_figure
    from vitlab.run.inference.saved_run import SavedRun

    a, b = (recipe.label for recipe in recipes)
    groups = {kind: [row for row in rows if row["right"] == kind] for kind in (a, b, "neither", "both")}
    chosen = [row for group in groups.values() for row in group[:PICTURED]]
    first = next(iter(recipes[0].runs.values()))
    try:
        datamodule = SavedRun.open(str(first.folder)).datamodule()
        datamodule.prepare_data()
        datamodule.setup()
        dataset = datamodule.get_evaluation_split("test")
        images = [dataset[(0, int(row["index"]))].image / 255 for row in chosen]
    except (VitlabError, OSError, AttributeError) as error:
        print(f"the samples cannot be drawn: {error}")
        return None
    said = {kind: f"{name} right" for kind, name in zip(groups, ("A alone", "B alone", "neither", "both"), strict=True)}
    titles = [f"{said[row['right']]}\ntrue: {row['true']}\nA: {row[a]}\nB: {row[b]}" for row in chosen]
    seed = "" if rows[0]["seed"] is None else f" of seed {rows[0]['seed']}"
    counts = ", ".join(f"{said[kind]}: {len(group):,}" for kind, group in groups.items())
    heading = f"A is {a}, B is {b}\ntest samples{seed}: {counts}"
    return write_figure(image_grid(images, titles, columns=PICTURED, heading=heading), folder / "samples.png")


def show(folder: Path, sentences: list[str], tables: dict[str, list[dict[str, Any]]], picture: Path | None) -> None:
    """Print the sentences, the means, and what differs."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    for sentence in sentences:
        console.print(sentence)
    metric = tables["differences"][0]["metric"]
    means = [row for row in tables["means"] if row["metric"] == metric]
    console.print(build_table([{key: value for key, value in row.items() if key in PRINTED} for row in means]))
    if tables["settings"]:
        console.print(build_table(tables["settings"][:MOST_ROWS]))
    console.print(f"tables in {folder}" + (f", samples in {picture}" if picture else ""))
