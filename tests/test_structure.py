"""The plan of the house, held: who may import whom, and what files may be called."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from vitlab.config.home import CONF

TESTS = Path(__file__).parent
SRC = TESTS.parent / "src"
FILES = sorted(SRC.rglob("*.py"))
ENTRIES = sorted(SRC.glob("*.py"))
HEAVY = {"torch", "torchvision", "torchmetrics", "pytorch_lightning", "lightning_fabric", "wandb", "timm", "matplotlib"}


def imported(file):
    """Dotted names of all a file imports, wherever in it, its own package's by their full names."""
    package = file.relative_to(SRC).parent.parts
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = package[: len(package) + 1 - node.level] if node.level else ()
            yield from (".".join([*origin, *filter(None, [node.module]), alias.name]) for alias in node.names)


IMPORTS = {file.relative_to(SRC).as_posix(): set(imported(file)) for file in FILES}


def packages_in(room):
    """Third-party packages that the files of a folder import."""
    names = {name.split(".")[0] for file, names in IMPORTS.items() if file.startswith(room) for name in names}
    return names - sys.stdlib_module_names - {"vitlab", "hydra_plugins"}


def rooms_behind(room):
    """Rooms of vitlab, and files at its root, that the files of a room import, itself among them."""
    files = (names for file, names in IMPORTS.items() if file.startswith((f"vitlab/{room}/", f"vitlab/{room}.py")))
    return {name.split(".")[1] for names in files for name in names if name.startswith("vitlab.")}


def importers_of(*packages):
    return {file for file, names in IMPORTS.items() if any(name.split(".")[0] in packages for name in names)}


def outside(files, *places):
    return sorted(file for file in files if not file.startswith(places))


# -- names


def test_no_file_or_folder_hides_a_module_that_is_imported():
    taken = sys.stdlib_module_names | packages_in("") | HEAVY | {"lightning", "hydra", "omegaconf"}
    names = {Path(part).stem for file in FILES for part in file.relative_to(SRC).parts} - {"__init__"}
    assert names & taken == set()


def test_rooms_are_named_by_nouns_of_the_field():
    parts = {Path(part).stem for file in FILES for part in file.relative_to(SRC).parts}
    assert parts & {"utils", "util", "utilities", "misc", "helper", "helpers", "common"} == set()


# -- who may import whom


@pytest.mark.parametrize("room", ["layers", "losses", "optim", "models", "counting", "features", "decoding"])
def test_the_mathematics_needs_torch_alone(room):
    libraries = {"vitlab/models/timm_model.py": {"timm"}, "vitlab/models/torchvision_model.py": {"torchvision"}}
    libraries |= {"vitlab/models/small_resnet.py": {"torchvision"}, "vitlab/optim/muon.py": {"timm"}}
    own = {file for file in IMPORTS if file.startswith(f"vitlab/{room}/")} - libraries.keys()
    assert set().union(*(packages_in(file) for file in own)) == {"torch"}
    for file, packages in libraries.items():
        assert packages_in(file) == {"torch"} | packages


def test_weights_need_few_libraries():
    allowed = {"torch", "numpy", "rich", "safetensors", "huggingface_hub", "timm", "transformers"}
    assert packages_in("vitlab/weights/") == allowed


@pytest.mark.parametrize(
    ("room", "allowed"),
    [
        ("layers", set()),
        ("losses", {"ranges"}),
        ("optim", {"ranges"}),
        ("models", {"layers", "ranges"}),
        ("weights", {"models", "layers", "errors", "checkpoints", "atomic_files", "vocabulary"}),
        ("views", {"models", "layers", "errors"}),
        ("counting", {"layers", "skeleton"}),
        ("features", {"models", "data", "seeding", "errors"}),
        ("decoding", {"vocabulary", "ranges"}),
        ("compression", {"bundles", "models", "errors", "machine"}),
        ("explaining", {"views", "models", "layers"}),
        ("serving", {"models", "views", "errors"}),
        ("vocabulary", {"errors"}),
        (
            "tasks",
            {"models", "layers", "losses", "optim", "data", "seeding", "distributed", "errors", "vocabulary", "ranges"}
            | {"monitors"},
        ),
    ],
)
def test_a_room_imports_only_from_the_rooms_below_it(room, allowed):
    assert rooms_behind(room) <= allowed | {room}


WITHIN = {
    "data": ("targets", "pools", "images", "batches", "order", "loading", "shards", "sources", "generated", "cache"),
    "run": ("hardware", "checks", "storage", "building", "inference", "printing"),
}


def room_of(parts):
    """The room of a module of vitlab: its folder, within data and run the folder there, or the file itself."""
    if not parts:
        return "vitlab"
    if parts[0] in WITHIN and len(parts) > 1 and (SRC / "vitlab" / parts[0] / parts[1]).is_dir():
        return f"{parts[0]}/{parts[1]}"
    return parts[0]


def arrows():
    """Pairs of rooms, of which the first imports from the second."""
    found = set()
    for file, names in IMPORTS.items():
        path = Path(file).with_suffix("").parts
        room = "entries"
        if path[0] != "vitlab":
            room = "plugins" if len(path) > 1 else "entries"
        else:
            room = room_of([part for part in path[1:] if part != "__init__"])
        ours = (name.split(".")[1:] for name in names if name.startswith("vitlab."))
        found |= {(room, room_of(parts)) for parts in ours} - {(room, room)}
    return found


def test_rooms_stand_in_floors_without_circles():
    above = arrows()
    rooms = {room for pair in above for room in pair}
    while rooms:
        ground = {room for room in rooms if not any(a == room and b in rooms for a, b in above)}
        assert ground, f"a circle among {sorted(rooms)}"
        rooms -= ground


# rooms that only read finished runs or start ordinary ones; each may import from three more
READERS = {"bundles", "compression", "explaining", "serving", "trials", "verification"}


def test_at_most_60_arrows_lie_between_rooms():
    folders = {path.name for path in (SRC / "vitlab").iterdir() if path.is_dir()} | {"entries", "plugins"}
    between = {tuple(room.split("/")[0] for room in pair) for pair in arrows()}
    between = {(a, b) for a, b in between if a != b and {a, b} <= folders}
    for reader in READERS:
        own = {(a, b) for a, b in between if reader == a}
        assert len(own) <= 3, sorted(own)
    between = {(a, b) for a, b in between if not {a, b} & READERS}
    assert len(between) <= 60, sorted(between)


@pytest.mark.parametrize("floor", ["data", "run"])
def test_within_data_and_run_each_room_needs_only_those_before_it(floor):
    rooms = WITHIN[floor]
    assert set(rooms) == {path.parent.name for path in (SRC / "vitlab" / floor).glob("*/__init__.py")}
    for a, b in arrows():
        if a.startswith(f"{floor}/") and b.split("/")[0] == floor:
            assert b != floor, a
            assert rooms.index(b.split("/")[1]) < rooms.index(a.split("/")[1]), (a, b)


def test_views_need_torch_and_what_draws():
    assert packages_in("vitlab/views/") == {"torch", "matplotlib", "numpy"}


def test_data_never_meets_models():
    met, behind = set(), {"data"}
    while behind - met:
        met |= behind
        behind = set().union(*(rooms_behind(room) for room in met))
    assert not met & {"models", "weights", "tasks"}


def test_hydra_stays_where_configs_are_composed_and_read():
    entries = tuple(entry.name for entry in ENTRIES)
    rooms = (*entries, "hydra_plugins/", "vitlab/config/", "vitlab/programs/")
    assert outside(importers_of("hydra"), *rooms) == []
    assert outside(importers_of("omegaconf"), *rooms, "vitlab/run/") == []


def test_private_names_of_hydra_stay_in_few_files():
    """They change without notice. The one file may: its tests would be twice as slow."""
    private = re.compile(
        r"hydra\._internal|omegaconf\._(?!_)|Singleton|\b_(get_node|get_full_key|metadata|is_missing)\b"
    )
    files = [*FILES, *(file for file in TESTS.rglob("*.py") if file != Path(__file__))]
    found = {file.name for file in files if private.search(file.read_text(encoding="utf-8"))}
    assert found == {"conftest.py"}


def test_lightning_stays_where_training_is_organised():
    rooms = [f"vitlab/{room}/" for room in ("tasks", "callbacks", "loggers", "distributed", "run", "programs")]
    importers = importers_of("pytorch_lightning", "lightning_fabric")
    assert outside(importers, *rooms, "vitlab/data/datamodule.py") == []
    assert outside(importers_of("torchmetrics"), "vitlab/tasks/", "vitlab/callbacks/") == []


def test_what_one_rank_does_alone_uses_no_model_of_all_of_them():
    """A sharded model computes where all ranks call it; a callback asks for `Task.task_on_rank_zero`."""
    for file in (SRC / "vitlab" / "callbacks").glob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert not ("is_global_zero" in text and re.search(r"\.model\b", text)), file


def test_tokenizers_stay_in_one_file():
    assert importers_of("tokenizers") == {"vitlab/vocabulary.py"}


def test_wandb_stays_in_one_file():
    assert importers_of("wandb") == {"vitlab/loggers/weights_and_biases.py"}


def test_nothing_imports_the_lightning_package_or_the_experiments():
    assert importers_of("lightning", "experiments") == set()


# -- the plan as it is written


def test_what_the_plan_names_is_there():
    text = (SRC.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\b(?:[a-z_]+/)+[a-z_]*(?:\.py|\.yaml)?", text))
    roots = (SRC, SRC / "vitlab", SRC / "vitlab" / "data", SRC / "vitlab" / "run", SRC.parent)
    assert len(named) > 40
    assert {name for name in named if not any((root / name).exists() for root in roots)} == set()
    rooms = {path.name for path in (SRC / "vitlab").iterdir() if (path / "__init__.py").is_file()}
    assert {room for room in rooms if f"{room}/" not in text} == set()


# -- the tests


@pytest.mark.parametrize("room", ["run", "programs"])
def test_a_module_has_its_tests_where_a_reader_looks(room):
    """The tests of vitlab/run/storage/start.py are in tests/run/storage/test_start.py."""
    modules = [file for file in (SRC / "vitlab" / room).rglob("*.py") if file.name != "__init__.py"]
    wanted = {file.relative_to(SRC / "vitlab").with_name(f"test_{file.name}").as_posix() for file in modules}
    assert len(wanted) > 10
    assert {name for name in wanted if not (TESTS / name).is_file()} == set()


# -- the words

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def test_a_docstring_begins_as_a_colleague_would():
    odd = re.compile(r"(Of|That of|Those of|As|Who)\b")
    found = [
        (file.name, text.splitlines()[0])
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, DOCUMENTED) and odd.match(text := ast.get_docstring(node) or "")
    ]
    assert found == []


# Words of drafts, each with the plain one. A phrase may be broken over lines; case counts only for names.
PLAIN_WORDS = {
    r"(?:goes|going|gone) on from": "resumes from",
    r"there is none of": "unknown",
    r"looked at alone": "only … is inspected",
    r"told of the other kind": "given the wrong kind of input",
    r"leads? nowhere": "cannot be resolved",
    r"is no name of": "is not a valid name",
    r"never lay so": "never used this layout",
    r"what of (?:it|them)\b": "the part that",
    r"as they are to meet": "with positions applied",
    r"these alone": "restricts",
    r"has written so": "corrupted",
    r"\bof one that is\b": "for models that",
    r"told[ _]apart": "distinguished",
    r"what there is of": "the available",
    r"as it is told": "as configured",
    r"nursery": "fork server",
    r"\bwork_off\b": "run_jobs",
    r"\bwork off\b": "run",
    r"\b(?:goes|going|gone) on with": "continues, resumes",
    r"\bone's own\b": "your own, the user's own",
    r"on the spot": "generated",
    r"nobody reads": "unknown, not used",
    r"a file of its own": "its own file",
    r"links? to nothing": "broken link",
    r"mend or remove": "repair or remove",
    r"unless told otherwise": "by default",
    r"told in words": "described",
    r"seed by seed": "at equal seeds",
    r"had together": "combined",
    r"\btexts alone\b": "only texts",
    r"\bto be had\b": "available",
}
PROSE_ALONE = {r"\bthat of\b": "repeat the noun", r"\bthose of\b": "repeat the noun", r"\bborn\b": "ready"}


def texts_of(*patterns):
    root = SRC.parent
    return {path.relative_to(root): path.read_text(encoding="utf-8") for p in patterns for path in root.glob(p)}


def places_of(phrases, texts):
    """Places of the texts in which one of the phrases stands, each with what to say instead."""
    for phrase, instead in phrases.items():
        wanted = re.compile(phrase.replace(" ", r"\s+(?:#\s*)?"))
        for path, text in texts.items():
            lines = [text.count("\n", 0, found.start()) + 1 for found in wanted.finditer(text)]
            yield from (f"{path}:{line}: {phrase}; say: {instead}" for line in lines)


PAGES = ("docs/*.md", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "conf/**/*.yaml", "experiments/**/*.yaml")


def test_the_source_uses_plain_words():
    assert list(places_of(PLAIN_WORDS, texts_of("src/**/*.py"))) == []


def test_pages_and_configs_use_plain_words():
    assert list(places_of(PLAIN_WORDS | PROSE_ALONE, texts_of(*PAGES))) == []


# Words that no name of a function begins with: participles, prepositions and other words that are no verbs.
NO_VERB = re.compile(
    r"_?(above|across|after|alike|among|as|asked|at|back|balanced|before|below|beside|between|both|bridged|built|by|cached"
    r"|changed|checked|chosen|collated|composed|continued|copied|counted|decoded|described|drawn|each|earlier|embedded"
    r"|encoded|ended|examined|extended|filled|finished|fitting|followed|for|found|frozen|given|gone|guarded|held|in|indexed"
    r"|into|joined|kept|laid|leaving|listed|lost|made|measured|merged|met|mixed|moved|named|numbered|of|one|opened|out|over"
    r"|own|parsed|placed|planned|pooled|prepared|printing|recognised|renamed|repeated|reserved|resized|resumed|saved|seen"
    r"|several|shared|shifted|short|shortened|shown|spaced|started|stated|stored|timed|together|told|too|torn|transformed"
    r"|twice|typed|under|unlike|unpacked|used|wanted|watching|whole|with|without|wrapped|writing)(_|$)|.*_of$|written$"
)
RESOLVERS = {"before_crop", "together"}  # ${before_crop:…} stands in the configs of saved runs


def test_the_name_of_a_function_begins_with_a_verb():
    named = (
        (file.name, node.name)
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if not any("property" in ast.unparse(decorator) for decorator in node.decorator_list)  # may be a noun
    )
    assert [(file, name) for file, name in named if NO_VERB.match(name) and name not in RESOLVERS] == []


# -- systems


def test_functions_that_macos_lacks_are_called_in_one_place():
    lacking = re.compile(r"os\.(pipe2|sched_\w+|memfd_create|posix_fadvise|eventfd)\(")
    found = {file.name for file in FILES if lacking.search(file.read_text(encoding="utf-8"))}
    assert found == {"machine.py"}


# -- the entries


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda path: path.name)
def test_an_entry_is_under_60_lines(entry):
    assert len(entry.read_text(encoding="utf-8").splitlines()) < 60


def test_nothing_heavy_loads_before_the_run():
    """Importing the entries, finding the plugins and composing a config: what --help, --cfg job and a typo wait for."""
    code = f"""
import sys
sys.path.insert(0, {str(SRC)!r})
{"".join(f"import {entry.stem}; " for entry in ENTRIES)}
from hydra import compose, initialize_config_dir
with initialize_config_dir({str(CONF)!r}, version_base="1.3"):
    compose("train", return_hydra_config=True)
print(*sorted({HEAVY!r} & set(sys.modules)))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stdout.split()) == (0, []), result.stderr


# -- length


@pytest.mark.parametrize("room", ["layers", "models"])
def test_a_file_of_the_model_is_at_most_250_lines(room):
    lengths = {
        file.name: len(file.read_text(encoding="utf-8").splitlines()) for file in SRC.glob(f"vitlab/{room}/*.py")
    }
    assert lengths
    assert {name for name, lines in lengths.items() if lines > 250} == set()


def test_a_constructor_is_at_most_40_lines():
    lengths = {}
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                name = file.relative_to(SRC / "vitlab").as_posix() if file.is_relative_to(SRC / "vitlab") else file.name
                lengths[name] = max(lengths.get(name, 0), node.end_lineno - node.lineno + 1)
    assert len(lengths) > 50
    assert {name: lines for name, lines in lengths.items() if lines > 40} == {}


@pytest.mark.ci
@pytest.mark.slow
def test_few_files_are_walked_through_before_the_first_step(cli, monkeypatch):
    """Of the default run, counted by a trace: files of which a function is called, imports apart."""
    walked = set()

    def note(frame, event, argument):
        code, caller = frame.f_code, frame.f_back
        imported = caller is not None and caller.f_code.co_name == "<module>"  # as a comprehension of a module
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and not imported:  # no class or module body
            walked.add(code.co_filename)

    def stop(*arguments, **keywords):
        sys.setprofile(None)
        raise KeyboardInterrupt

    monkeypatch.setattr("torch.optim.AdamW.step", stop)
    sys.setprofile(note)
    try:
        ended = cli("train", tiny=False)
    finally:
        sys.setprofile(None)
    assert ended.status == 130
    ours = {file for file in walked if file.startswith(str(SRC))}
    assert 50 < len(ours) <= 110, "\n".join(sorted(ours))
