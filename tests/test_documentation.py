"""README and docs: every command is one that its entry takes, every link leads somewhere, every name exists, and code
runs, or is what stands in the source."""

import ast
import contextlib
import io
import re
import shlex
import shutil
from pathlib import Path

import coloured
import pytest
from conftest import image_folder
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from reading import write_numbers

from vitlab.config.arguments import quote_value
from vitlab.config.home import CONF, ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in DOCUMENTS}
ENTRIES = sorted(path.stem for path in (ROOT / "src").glob("*.py"))

OWN_CODE = "docs/own_code.md"  # whose files and commands tests/test_own_code.py writes and runs
PACKAGE = "docs/package.md"  # describes the package where it is published, and is no page of the site

COMMAND = re.compile(rf"(?:python src/(?:{'|'.join(ENTRIES)})\.py|\bvitlab (?:{'|'.join(ENTRIES)})\b)[^`\n|#]*")
OF_THIS_PROJECT = [text for name, text in TEXTS.items() if name != OWN_CODE]
COMMANDS = sorted({found.group().strip() for text in OF_THIS_PROJECT for found in COMMAND.finditer(text)})
INLINE = {code for text in OF_THIS_PROJECT for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)}
OVERRIDES = sorted(code for code in INLINE if re.fullmatch(r"(?:'?[a-z/@.]+=[^ …]+ ?)+", code))
LINKS = sorted(
    (name, link) for name, text in TEXTS.items() for link in re.findall(r"\]\(([^)\s]+)\)", text) if ":" not in link
)
PATHS = sorted({code for code in INLINE if re.fullmatch(r"(?:src|conf|docs|experiments|tests|vitlab)/[\w/.]*", code)})


def overrides_of(words: list[str]) -> list[str]:
    """Without flags and what is left open; of a sweep the first value."""
    words = [word for word in words if not word.startswith("-") and "…" not in word and "=" in word]
    parsed = OverridesParser.create().parse_overrides([quote_value(word, "-m" in words) for word in words])
    first = {o.input_line: next(o.sweep_string_iterator()) for o in parsed if o.is_sweep_override()}
    return [f"{o.get_key_element()}={first[o.input_line]}" if o.input_line in first else o.input_line for o in parsed]


def entry_and_words(command: str) -> tuple[str, list[str]]:
    """With X for what a reader fills in: <run>, <file, folder or glob>. `vitlab train` is python src/train.py."""
    words = shlex.split(re.sub(r"<[^>]*>", "X", command))
    return Path(words[1]).stem, words[2:]


def composed(entry: str, overrides: list[str]) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        compose(entry, overrides=overrides)


def alternatives(code: str) -> list[list[str]]:
    """trainer=cpu|gpu is trainer=cpu, and trainer=gpu."""
    words = shlex.split(code)
    count = max(word.count("|") for word in words) + 1
    return [
        [re.sub(r"=.*", f"={(word.split('=', 1)[1].split('|') * count)[i]}", word) for word in words]
        for i in range(count)
    ]


# -- commands


def test_there_are_commands_of_every_entry():
    assert len(COMMANDS) > 40
    assert {entry_and_words(command)[0] for command in COMMANDS} == set(ENTRIES)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_composes(command):
    entry, words = entry_and_words(command)
    composed(entry, overrides_of(words))


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.parametrize("code", OVERRIDES)
def test_keys_and_options_that_are_named_exist(code):
    for words in alternatives(code):
        refusals = []
        for entry in ["train", *ENTRIES]:
            try:
                composed(entry, words)
                break
            except HydraException as error:
                refusals.append(str(error))
        else:
            pytest.fail(refusals[0])


# What stands in a command that does not run here: left open, another's name, not on this disk, or long.
NOT_HERE = re.compile(
    r"…|<name>|NAME|SOURCE|JOB|runs/|run=latest|-m |timm:|resume=|recipe=|study=|sweeps\.py|trainer="
    r"|data=(?:cifar|imagenet)|teacher\.pretrained|=published|minutes=|bundle=DIR|chain="
)
HERE = [command for command in COMMANDS if command.startswith("python") and not NOT_HERE.search(command)]


@pytest.mark.slow
@pytest.mark.parametrize("command", HERE)
def test_a_command_runs(command, cli, digits_run, short_run, tmp_path, picture):
    """Trainings take a step or two; a run is the smallest model's on the digits, and another one a shorter one."""
    shutil.copytree(digits_run, tmp_path / "run")
    shutil.copytree(short_run, tmp_path / "runs" / "other")
    picture(tmp_path / "photo.png")
    image_folder(tmp_path / "photos") if "images=photos" in command else None
    image_folder(tmp_path / "DIR", count=60) if "root=DIR" in command else None
    coloured.draw(tmp_path) if "captions.csv" in command else None
    coloured.ask(tmp_path) if "questions.csv" in command else None
    write_numbers(tmp_path / "pairs.tsv") if "pairs.tsv" in command else None
    coloured.save_pieces(tmp_path) if "tokenizer.json" in command else None
    command = command.replace("<run>,<run>", "<run>,runs/other").replace("<run>", "run")
    entry, words = entry_and_words(command.replace("<file, folder or glob>", "photo.png"))
    if entry == "train":
        words += ["trainer.fast_dev_run=true", "trainer.max_epochs=1", "global_batch_size=8", "logger=none"]
    done = cli(entry, *words, tiny=False)
    assert done.status == 0, done.err


def test_commands_of_most_entries_run():
    assert len(HERE) > 10
    assert {entry_and_words(command)[0] for command in HERE} >= {"train", "evaluate", "predict", "export", "survey"}


# -- links and names


@pytest.mark.parametrize(("document", "link"), LINKS)
def test_a_link_leads_somewhere(document, link):
    path, _, anchor = link.partition("#")
    target = (ROOT / document).parent / path if path else ROOT / document
    assert target.exists()
    if anchor:
        headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.M)
        assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_is_named_exists(path):
    assert (ROOT / path).exists() or (ROOT / "src" / path).exists()


def test_every_document_is_reached_from_the_readme():
    reached, new = set(), {"README.md"}
    while new:
        reached |= new
        ends = {(ROOT / name).parent / link.partition("#")[0] for name, link in LINKS if name in new}
        new = {end.resolve().relative_to(ROOT).as_posix() for end in ends} & TEXTS.keys() - reached
    assert reached == TEXTS.keys() - {PACKAGE}


def test_every_document_stands_in_the_navigation_of_the_site():
    nav = set(re.findall(r"[\w/]+\.md", OmegaConf.to_yaml(OmegaConf.load(ROOT / "mkdocs.yml").nav)))
    notebooks = {f"{path.stem}.md" for path in (ROOT / "docs").glob("*.ipynb")}
    assert nav == {Path(name).name for name in TEXTS.keys() - {"README.md", PACKAGE}} | notebooks | {
        "index.md",
        "reference/index.md",
        "reference/public.md",
    }


@pytest.mark.parametrize("kind", ["recipe", "study"])
def test_every_recipe_and_study_is_named(kind):
    names = {path.stem for path in (ROOT / "experiments" / kind).glob("[a-z]*.yaml")}
    assert names - set(re.findall(r"\w+", TEXTS["docs/recipes.md"])) == set()


def test_every_model_and_data_set_is_named():
    for group, page in {"model": "family", "data": "data"}.items():
        names = {path.stem for path in (CONF / group).glob("[a-z]*.yaml")}
        assert names - set(re.findall(r"\w+", TEXTS[f"docs/{page}.md"])) == set()


# -- code

QUOTED = [
    (name, file, lines)
    for name, text in TEXTS.items()
    for file, lines in re.findall(r'^```python title="([^"]+)"\n(.*?)^```', text, re.M | re.S)
]
PRINTING = {
    name for name, text in TEXTS.items() if re.search(r"^```python\n(?:(?!^```).)*^```\n\n```text", text, re.M | re.S)
}


def statements(code: str) -> list[str]:
    """The lines of some code as Python itself would write them: no comments, no docstrings, no layout."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            node.body[0] = ast.parse("...").body[0]
    return [line.strip() for line in ast.unparse(tree).splitlines()]


@pytest.mark.parametrize(("document", "file", "lines"), QUOTED)
def test_code_that_is_quoted_stands_in_its_file_in_this_order(document, file, lines):
    source, place = statements((ROOT / file).read_text(encoding="utf-8")), 0
    for part in re.split(r"^\.\.\.$", lines, flags=re.M):
        wanted = statements(part)
        starts = range(place, len(source) - len(wanted) + 1)
        found = [start for start in starts if source[start : start + len(wanted)] == wanted]
        assert found, f"{file} has no longer, after line {place} of its statements: {part}"
        place = found[0] + len(wanted)


@pytest.mark.parametrize("document", sorted(PRINTING))
def test_code_runs_and_prints_what_stands_below_it(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code, expected in re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", TEXTS[document], re.M | re.S):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, document, "exec"), names)
        assert printed.getvalue() == expected


def test_every_part_of_the_equations_names_a_test_that_holds_it():
    parts = re.split(r"^## ", TEXTS["docs/equations.md"], flags=re.M)[1:]
    assert len(parts) > 10
    for part in parts:
        assert re.search(r"Held by `tests/|held by `tests/", part.replace("\n", " ")), part.splitlines()[0]


# -- figures


def rows_of_recipes() -> list[tuple[str, str]]:
    rows = re.findall(r"^\| `recipe=(\w+)`[^|]*\| ([^|]*) \|", TEXTS["docs/measurements.md"], re.M)
    assert len(rows) > 5
    return rows


@pytest.mark.parametrize(("recipe", "result"), rows_of_recipes())
def test_a_figure_is_what_the_header_of_its_recipe_says(recipe, result):
    text = (ROOT / "experiments" / "recipe" / f"{recipe}.yaml").read_text(encoding="utf-8")
    header = " ".join(line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#"))
    figure = re.match(r"[\d.]+ %(?: ± [\d.]+)?", result)
    assert figure is not None
    assert figure.group() in header


def test_a_figure_of_the_readme_stands_in_full_where_it_was_measured():
    (told,) = re.findall(r"\[what was measured\].*?\n\n", TEXTS["README.md"], re.S)
    measured = set(re.findall(r"([\d.]+) %", TEXTS["docs/measurements.md"]))
    figures = re.findall(r"([\d.]+) %", told)
    assert len(figures) > 2
    assert set(figures) <= measured


def test_the_versions_that_are_stated_are_the_packages():
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M)
    assert version is not None
    citation = OmegaConf.load(ROOT / "CITATION.cff")
    newest, released, *_ = re.findall(r"^## (\S+)", TEXTS["CHANGELOG.md"], re.M)
    assert newest == version.group(1)
    assert citation.version == released


def test_the_glossary_is_in_the_order_of_the_alphabet():
    terms = re.findall(r"^\| (?!term|---)([^|]*?) \|", TEXTS["docs/glossary.md"], re.M)
    assert len(terms) > 40
    assert terms == sorted(terms, key=lambda term: re.sub(r"[`-]", "", term.lower()))
