"""A report of finished runs: what it says is what the runs' files say, and it can be read without anything else."""

import base64
import csv
import json
import re
from html.parser import HTMLParser
from io import BytesIO

import numpy as np
import pytest
import torch
import yaml
from browser import check_access, open_browser
from conftest import BARE, FEW, TINY, finished, refuses
from PIL import Image

from programs.test_compare import write_recipe, write_run
from vitlab.reports.comparison import compare
from vitlab.reports.intervals import wilson_interval


class Page(HTMLParser):
    """The text of each section, its tables as rows of cells, and what the page loads, by their tags."""

    def __init__(self, text):
        super().__init__()
        self.sections, self.tables, self.images, self.loads, self.heads, self.tags = {}, [], [], [], [], []
        self.section = self.cell = None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.append(tag)
        if tag == "section":
            self.section = found["id"]
        if tag == "img":
            self.images.append((found["src"], found["alt"]))
        if tag == "table":
            self.tables.append((self.section, []))
        if tag == "tr":
            self.tables[-1][1].append([])
        if tag in ("th", "td"):
            self.cell = ""
        self.loads += [found[key] for key in ("src", "href", "data") if key in found and tag != "a"]

    def handle_endtag(self, tag):
        if tag in ("th", "td"):
            self.tables[-1][1][-1].append(self.cell.strip())
            self.cell = None

    def handle_data(self, data):
        self.sections[self.section] = self.sections.get(self.section, "") + data
        if self.cell is not None:
            self.cell += data

    def rows(self, section, *heads):
        """The rows of the table in a section that has such columns."""
        for place, (names, *rows) in self.tables:
            if place == section and set(heads) <= set(names):
                return [dict(zip(names, row, strict=True)) for row in rows]
        raise AssertionError((section, heads, [(place, rows[0]) for place, rows in self.tables]))


def read_page(path):
    text = path.read_text(encoding="utf-8")
    return text, Page(text)


@pytest.fixture
def write_report(cli, tmp_path):
    """write_report(runs, *words) -> the text of the page, its parts, and what was printed."""

    def call(runs, *words):
        done = cli("report", f"runs=[{','.join(map(str, runs))}]", "output=out.html", *words, tiny=False)
        assert done.status == 0, done.err
        return *read_page(tmp_path / "out.html"), done.out

    return call


def write_origin(folder, commit, when, **versions):
    start = {"time": when, "command": "python src/train.py seed=1", "device": "a machine", "versions": versions}
    (folder / "provenance.json").write_text(json.dumps([start | {"git": {"commit": commit, "modified": False}}]))


# -- one run


@pytest.fixture(scope="module")
def reported(digits_run, tmp_path_factory):
    """The report of a run of two epochs, of few images, made once."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        folder = tmp_path_factory.mktemp("report")
        monkeypatch.chdir(folder)
        words = ["num_images=3", "num_explained=2", "num_scored=100", "output=out.html"]
        monkeypatch.setattr("sys.argv", ["report.py", f"runs=[{digits_run}]", *words])
        __import__("report").main()
    return folder / "out.html"


def test_the_figures_of_a_run_are_those_of_its_files(reported, digits_run):
    _, page = read_page(reported)
    result = json.loads((digits_run / "result.json").read_text())
    rows = list(csv.DictReader((digits_run / "test_predictions.csv").open()))
    accuracy = np.mean([row["true"] == row["predicted"] for row in rows])
    low, high = wilson_interval(round(accuracy * len(rows)), len(rows))
    told = f"{accuracy:.2%} on 359 test samples; with other samples of this kind it would lie between {low:.1%}"
    assert f"test/acc1 {told} and {high:.1%}." in page.sections["results"]
    matrix = page.rows("classes", "true ↓ said →")
    for row in matrix:
        for name in map(str, range(10)):
            count = sum(one["true"] == row["true ↓ said →"] and one["predicted"] == name for one in rows)
            assert row[name] == (str(count) if count else "")
    per_class = {row["class"]: row for row in csv.DictReader((digits_run / "test_per_class.csv").open())}
    table = page.rows("classes", "class", "F1")
    assert len(table) == 10
    for row in table:
        own = per_class[row["class"]]
        assert (row["images"], row["F1"]) == (own["images"], f"{float(own['f1']):.1%}")
        assert row["recall"] == f"{float(own['recall']):.1%}"
        assert row["precision"] == (f"{float(own['precision']):.1%}" if own["precision"] else "")
    assert [float(row["F1"][:-1]) for row in table] == sorted(float(row["F1"][:-1]) for row in table)
    assert f"temperature {result['calibration']['temperature']:.3f}" in page.sections["reliability"]
    flagged = [row for row in rows if float(row["novelty"]) > 1]
    assert f"{len(flagged)} of 359 test images ({len(flagged) / 359:.1%})" in page.sections["none"]
    losses = sorted((float(row["loss"]) for row in rows), reverse=True)
    assert re.findall(r"loss (\d+\.\d\d)\b", page.sections["worst"]) == [f"{loss:.2f}" for loss in losses[:3]]
    start = json.loads((digits_run / "provenance.json").read_text())[-1]
    assert start["command"] in page.sections["commands"]
    assert page.rows("origins", "torch")[0]["torch"] == start["versions"]["torch"]
    assert page.rows("cost", "training time")[0]["training time"] == f"{result['seconds']:,.0f} s"


def test_the_probabilities_before_the_temperature_are_those_of_the_weights(reported, digits_run):
    from vitlab.data.evaluation import evaluation_batches
    from vitlab.run.inference.saved_run import SavedRun
    from vitlab.views import pick

    _, page = read_page(reported)
    saved = SavedRun.open(str(digits_run))
    task, data = saved.task().eval(), saved.datamodule()
    data.prepare_data()
    data.setup()
    places = pick(359, 100)
    batches = evaluation_batches(data, "test", batch_size=50, device=torch.device("cpu"), places=places)
    with torch.inference_mode():
        found = [(task(*batch.view.arguments()), batch.target) for batch in batches]
    logits, target = (torch.cat(part) for part in zip(*found, strict=True))
    told = []
    for probabilities in (logits.softmax(dim=1), (logits / saved.temperature).softmax(dim=1)):
        confidence, predicted = probabilities.max(dim=1)
        bins = (confidence * 15).long().clamp_max(14)
        gaps = [
            (predicted == target)[bins == b].double().sum() - confidence[bins == b].double().sum() for b in range(15)
        ]
        told.append(float(sum(map(abs, gaps))) / 100)
    assert f"{told[0]:.2%} before, {told[1]:.2%} after" in page.sections["reliability"]
    assert "run on 100 of 359 test images again; 100 predictions are as in the test" in page.sections["reliability"]


def test_the_scores_of_heat_maps_are_those_of_the_model(reported, digits_run):
    from vitlab.run.inference.saved_run import SavedRun
    from vitlab.views import relevance
    from vitlab.views.faithfulness import measure_faithfulness

    _, page = read_page(reported)
    saved = SavedRun.open(str(digits_run))
    task, data = saved.task().eval(), saved.datamodule()
    data.prepare_data()
    data.setup()
    scores = []
    for place in (0, 358):
        image = data.preprocessing.normalize(data.get_evaluation_split("test")[(0, place)].image[None])
        with torch.inference_mode():
            k = int(task(image).argmax())

            def predict(images, k=k):
                return task.probabilities(task(images))[:, k]

            heat = relevance(task.model, image, k)
            scores.append(measure_faithfulness(predict, image, heat, task.model.patch_embed.grid).deletion_score)
    row = next(row for row in page.rows("maps", "deletion score") if row["map"] == "relevance")
    assert row["deletion score"].split(" ± ")[0] == f"{np.mean(scores):.3f}"


def test_the_page_needs_nothing_else_and_shows_the_images_of_the_data(reported, digits_run):
    text, page = read_page(reported)
    assert reported.stat().st_size < 1_000_000
    assert all(load.startswith("data:image/") for load in page.loads)
    assert "script" not in page.tags
    assert not re.search(r"@import|url\(|https?:", text.replace("http-equiv", ""))
    from vitlab.run.inference.saved_run import SavedRun

    data = SavedRun.open(str(digits_run)).datamodule()
    data.prepare_data()
    data.setup()
    assert len(page.images) > 15
    small = [(uri, told) for uri, told in page.images if uri.startswith("data:image/png")]
    assert small
    for uri, told in small:
        index, name = re.match(r"(?:image of )?test image (\d+),? ?(\S*):?", told).groups()
        shown = np.asarray(Image.open(BytesIO(base64.b64decode(uri.partition(",")[2]))).convert("L"))
        assert np.array_equal(shown, data.get_evaluation_split("test")[(0, int(index))].image[0].numpy()), name


# -- several runs


def test_recipes_are_told_in_the_sentences_of_compare_with_curves_and_the_settings_that_differ(tmp_path, write_report):
    a = write_recipe(tmp_path, "small", [0.70, 0.71, 0.69])
    b = write_recipe(tmp_path, "large", [0.80, 0.82, 0.80], lr=5e-3)
    for number, folder in enumerate([*a, *b]):
        rows = [{"step": 10 * k, "val/loss": 1 / (k + number + 1), "val/acc1": 0.1 * k} for k in range(4)]
        with (tmp_path / folder / "metrics.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, ["step", "val/loss", "val/acc1"])
            writer.writeheader()
            writer.writerows(rows)
    _, page, out = write_report([*a, *b])
    from vitlab.programs.compare import group_by_settings, read_chosen

    (pair,) = compare(group_by_settings([read_chosen(tmp_path / run) for run in (*a, *b)]), "test/acc1")
    assert pair.sentence() in page.sections["results"]
    assert pair.sentence() in out
    assert "Which of two recipes is best in test/acc1? They differ in optimizer.lr." in page.sections["results"]
    assert page.rows("settings", "key") == [{"key": "optimizer.lr", "small": "0.001", "large": "0.005"}]
    loss = page.rows("curves", "small, validation", "large, validation")
    small = np.mean([[1 / (k + number + 1) for k in range(4)] for number in range(3)], axis=0)
    assert [row["small, validation"] for row in loss] == [f"{value:.4g}" for value in small]
    assert "bands: lowest to highest seed" in page.sections["curves"]
    assert "3 × cat, 3 × dog" in page.sections["worst"]


def test_one_recipe_of_several_seeds_is_told_with_its_interval(tmp_path, write_report):
    a = write_recipe(tmp_path, "a", [0.70, 0.75, 0.80])
    _, page, _ = write_report(a)
    assert "a reaches test/acc1 75.00% ± 12.42 points (mean of three seeds" in page.sections["results"]


def test_two_runs_of_one_recipe_from_different_commits_are_a_regression_report(tmp_path, write_report):
    good, bad = np.arange(200) < 180, np.arange(200) < 150
    old = write_run(tmp_path / "b", "a", 0, good)
    new = write_run(tmp_path / "a", "a", 0, bad)
    write_origin(old, "1" * 40, "2026-01-01 10:00:00", torch="2.14")
    write_origin(new, "2" * 40, "2026-01-02 10:00:00", torch="2.15")
    _, page, _ = write_report([new, old])
    told = page.sections["changes"]
    assert "A regression: commit 2222222222 is worse than commit 1111111111. 30 test samples are wrong now" in told
    rows = {row["what"]: row for row in page.rows("changes", "what")}
    assert rows["torch"] == {"what": "torch", "commit 1111111111": "2.14", "commit 2222222222": "2.15"}
    assert rows["test/acc1"]["commit 2222222222"] == "75.00%"
    assert "Does one recipe give the same test/acc1 as before?" in page.sections["results"]


def test_equal_figures_from_another_commit_are_no_regression(tmp_path, write_report):
    runs = [write_run(tmp_path / name, "a", 0, np.arange(200) < 150) for name in "ab"]
    for number, run in enumerate(runs, 1):
        write_origin(run, str(number) * 40, f"2026-01-0{number} 10:00:00")
    assert "No regression: every metric and every prediction is the same" in write_report(runs)[1].sections["changes"]


def test_other_seeds_from_another_commit_are_one_recipe_and_a_note(tmp_path, write_report):
    runs = [write_run(tmp_path / name, "a", seed, np.arange(200) < 150 + seed) for seed, name in enumerate("ab")]
    for number, run in enumerate(runs, 1):
        write_origin(run, str(number) * 40, f"2026-01-0{number} 10:00:00")
    _, page, _ = write_report(runs)
    assert "changes" not in page.sections
    assert "The runs of a are of different software: commit 1111111111; commit 2222222222." in page.sections["results"]


def test_a_run_whose_images_and_weights_are_gone_is_reported_without_them(tmp_path, write_report):
    _, page, out = write_report(write_recipe(tmp_path, "a", [0.7]))
    assert "The images and the model cannot be read" in page.sections["missing"]
    assert "The images and the model cannot be read" in out
    assert page.images == []
    assert page.rows("classes", "class", "recall")[0]["class"] in ("cat", "dog")


def test_names_of_others_are_shown_and_never_read_as_html(tmp_path, write_report):
    (run,) = write_recipe(tmp_path, "a", [0.7])
    odd = "<script>alert(1)</script>&\"'"
    for name in ("test_predictions.csv", "config.yaml"):
        path = tmp_path / run / name
        path.write_text(path.read_text().replace("dog", '"' + odd.replace('"', '""') + '"'))
    config = yaml.safe_load((tmp_path / run / "config.yaml").read_text()) | {"name": "<b>x</b>"}
    (tmp_path / run / "config.yaml").write_text(yaml.safe_dump(config))
    text, page, _ = write_report([run])
    assert "<script" not in text
    assert "<b>" not in text
    assert odd in page.sections["classes"]


def test_a_run_without_classes_is_reported_by_its_metrics(tmp_path, write_report):
    (run,) = write_recipe(tmp_path, "a", [0.7])
    (tmp_path / run / "test_predictions.csv").unlink()
    _, page, _ = write_report([run])
    assert "names no single class" in page.sections["missing"]
    assert "classes" not in page.sections


def test_what_cannot_be_reported_is_refused(tmp_path, cli):
    a = write_recipe(tmp_path, "a", [0.7])[0]
    unfinished = write_run(tmp_path / "c", "c", 0, np.ones(200), result=False)
    (tmp_path / "there.html").touch()

    def refused(sentence, *words, status=2):
        done = cli("report", *words, tiny=False)
        assert refuses(done, sentence), done.err
        assert done.status == status

    refused("nothing to report; give one of runs=[A,B], sweep=NAME or study=NAME")
    refused("runs= names no run that is done", "runs=[]")
    refused("has no result, because its training has not ended", f"runs=[{unfinished}]", status=4)
    refused("nothing is not the folder of a run", "runs=[nothing]", status=4)
    refused("are the same recipe with seed 0; leave one out", f"runs=[{a},{a}]")
    refused("output=there.html exists; name another file, or add overwrite=true", f"runs=[{a}]", "output=there.html")
    refused("ends in none of .html", f"runs=[{a}]", "output=page.pdf")
    write_origin(tmp_path / a, "1" * 40, "2026-01-01 10:00:00")
    refused("lies in the run", f"runs=[{a}]", f"output={a}/checkpoints/page.html")
    refused("num_images=25 makes a page too large to send; set at most 24", f"runs=[{a}]", "num_images=25")
    refused("has no metric test/f1", f"runs=[{a}]", "metric=f1")
    refused("there is no sweep none", "sweep=none", status=4)
    predictions = tmp_path / a / "test_predictions.csv"
    predictions.write_text(predictions.read_text().replace("0.9", "much"))
    refused("test_predictions.csv is damaged", f"runs=[{a}]", status=4)
    assert not (tmp_path / "page.pdf").exists()
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_sweep_is_reported_with_what_its_models_disagree_on(cli, tmp_path):
    words = [*TINY, *BARE[1:], *FEW, "trainer.max_epochs=1", "optimizer.lr=1e-3,1e-2", "seed=0,1", "sweep=lr", "-m"]
    done = cli("train", *words, tiny=False)
    assert done.status == 0, done.err
    done = cli("report", "sweep=lr", "num_images=2", "num_explained=2", tiny=False)
    assert done.status == 0, done.err
    (path,) = (tmp_path / "runs" / "report").glob("*/report.html")
    _, page = read_page(path)
    assert re.search(r"\d × \d, ", page.sections["worst"])
    assert "bands: lowest to highest seed" in page.sections["curves"]
    assert len(page.rows("origins", "commit")) == 4


@pytest.mark.slow
def test_a_model_that_is_no_transformer_has_no_heat_maps_but_all_else(tmp_path, write_report):
    run = finished(tmp_path / "run", *BARE[1:], *FEW, "trainer.max_epochs=1", "model=resnet20")
    _, page, _ = write_report([run])
    assert "Where the model looks is not shown" in page.sections["missing"]
    assert "maps" not in page.sections
    assert len(page.images) > 5


# -- as it is seen


@pytest.fixture
def opened(reported):
    """opened(width, scheme="light") -> the report in a browser, which may load nothing but the file."""
    with open_browser() as browser:

        def show(width, scheme="light"):
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            asked = []
            page.on("request", lambda request: asked.append(request.url))
            page.goto(reported.as_uri())
            assert [url for url in asked if not url.startswith("data:")] == [reported.as_uri()]
            return page

        yield show


@pytest.mark.slow
@pytest.mark.ci
def test_the_page_fits_each_width_and_prints_and_its_first_screen_has_the_answer(opened):
    for width in (400, 800, 1600):
        page = opened(width)
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate("document.querySelector('.lead').getBoundingClientRect().bottom") < 900
        broken = "[...document.images].filter(image => !image.naturalWidth).length"
        assert page.evaluate(broken) == 0
    assert len(page.pdf()) > 10_000


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_wrong(opened, scheme):
    page = opened(800, scheme)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert check_access(page) == []


@pytest.mark.slow
@pytest.mark.ci
def test_the_keyboard_reaches_links_tables_and_what_is_folded(opened):
    page = opened(800)
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.tagName + ' ' + document.activeElement.className"))
    assert reached[0] == "A skip"
    assert {one.split()[0] for one in reached} >= {"A", "DIV", "SUMMARY"}
    page.evaluate("document.querySelector('summary').focus()")
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelector('details').open")
    shown = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(shown) == "solid"
