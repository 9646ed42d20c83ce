"""Whatever is wrong in a command line, a recipe or a study is refused in one sentence with the name that was meant."""

import subprocess
import sys

import pytest
from conftest import SRC, TINY, chosen, refuses

from vitlab.config.home import CONF


def refused(run, *words, status=2):
    """One sentence on stderr that holds the words, and nothing left behind."""
    lines = [line for line in run.err.splitlines() if line.strip()]
    assert run.status == status, run.err
    assert len(lines) == 1, run.err
    for word in words:
        assert word in lines[0], run.err
    assert run.folder is None or not run.folder.exists()


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("modle=vit_s16", ["no key modle", "did you mean model?"]),
        ("optimizer.lrr=1", ["no key optimizer.lrr", "did you mean optimizer.lr?"]),
        ("optimizer.lr.x=1", ["no key optimizer.lr.x", "optimizer.lr holds a value"]),
        ("data.sorce.root=x", ["data.sorce", "did you mean data.source?"]),
        ("model=vit_b61", ["no model=vit_b61", "did you mean vit_b16?"]),
        ("model=16", ["no model=16"]),
        ("mixing=null", ["no mixing=null", "none"]),
        ("data=", ["no data="]),
        ("recipe=_digits", ["no recipe=_digits", "did you mean digits?"]),
        ("model=../model/vit_mu4", ["no model=../model/vit_mu4"]),
        ("callbacks=[default,_x]", ["no callbacks=_x"]),
        ("callbacks=[default,default]", ["callbacks=[default,default] holds default twice"]),
        ("logger=[none,wandb]", ["logger=[none,wandb] holds none and other options"]),
        ("recipe=digts", ["no recipe=digts", "did you mean digits?"]),
        ("callbacks=[default,emma]", ["no callbacks=emma", "did you mean ema?"]),
        ("callbacks.ema.decay=0.9", ["callbacks.ema is not among the chosen", "callbacks=[default,ema]"]),
        ("fooo@bar=3", ["fooo"]),
        ("=3", ["'=3'", "has no key"]),
        ("a:b", ["'a:b'", "KEY=VALUE"]),
        ("seed=${", ["'seed=${'"]),
        ("--seed=3", ["--seed=3 is seed=3; type: "]),
        ("--nothing=3", ["--nothing=3", "without dashes"]),
        ("nothing", ["cannot read 'nothing'; an override is KEY=VALUE, and --help lists the keys"]),
        ("optimizer.lr=0,001", ["for a sweep add -m", "for a decimal number type optimizer.lr=0.001"]),
        ("data=folder", ["data.source.root has no value; set data.source.root=..."]),
        ("model=vit_base_patch16_224", ["did you mean vit_b16 with model.pretrained=timm:vit_base_patch16_224?"]),
        ("model=deit_tiny_patch16_224", ["did you mean deit_ti16 with"]),
        ("model=ViT-B/16", ["no model=ViT-B/16; did you mean vit_b16?"]),
        ("+optimizer.lr=3", ["optimizer.lr is there already", "leave out the plus"]),
        ("optimizer.lr=1,2", ["optimizer.lr=1,2", "add -m"]),
        ("~nope", ["no key nope"]),
        ("hydra.mode=FOO", ["hydra.mode", "MULTIRUN"]),
        ("hydra.run.dri=x", ["no key hydra.run.dri", "did you mean hydra.run.dir?"]),
        ("+globl_batch_size=1", ["globl_batch_size", "did you mean global_batch_size?"]),
        ("+callbacks.emma.decay=0.9", ["callbacks.emma", "did you mean callbacks.ema?"]),
        ("+model.depht=1", ["model.depht", "did you mean model.depth?"]),
        ("+optimizer.algorithm.beta=1", ["optimizer.algorithm.beta", "did you mean optimizer.algorithm.betas?"]),
        ("trainer.max_epohcs=3", ["trainer.max_epohcs", "did you mean trainer.max_epochs?"]),
        ("+trainer.limit_val_bathces=3", ["trainer.limit_val_bathces", "did you mean trainer.limit_val_batches?"]),
        ("name=${nope}", ["name refers to a value that does not exist", "'nope'"]),
        ("name=${name}", ["name refers to a value that does not exist", "Recursive"]),
        ("optimizer.lr=${nope}", ["optimizer.lr refers to a value that does not exist", "'nope'"]),
        ("seed=${oc.env:NOPE}", ["seed refers to a value that does not exist", "NOPE"]),
        ("~seed", ["seed has no value"]),
        ("~mixing", ["mixing has no value"]),
    ],
)
def test_hydras_own_refusals_are_a_sentence_with_the_nearest_name(cli, override, words):
    refused(cli("train", override), *words)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["recipe=digits", "recipe=few_labels"], "recipe is chosen twice, by recipe=digits and recipe=few_labels"),
        (["model=vit_mu4", "model=vit_b16"], "model is chosen twice"),
        (["-m", "model=vit_mu4", "model=vit_mu4,vit_ti4"], "model is chosen twice"),
        (["-m", "model=vit_mu4,_vit"], "no model=_vit"),
        (["model@teacher=_of_run", "model@teacher=vit_mu4"], "model@teacher is chosen twice"),
    ],
)
def test_a_group_is_chosen_once(cli, words, told):
    refused(cli("train", *words, tiny=False, exact=True), told)


@pytest.mark.parametrize("flags", [["--cfg", "job", "-m"], ["--cfg", "jo"], ["--resolve"]])
def test_flags_that_do_not_go_together_are_a_sentence(cli, flags):
    refused(cli("train", *flags, tiny=False))


RECIPES = {
    "globl_batch_size: 1024": ["globl_batch_size", "did you mean global_batch_size?"],
    "callbacks: {emma: {decay: .99}}": ["callbacks.emma", "did you mean callbacks.ema?"],
    "callbacks: {ema: {decay: .99}}": ["callbacks.ema is not among the chosen"],
    "defaults: [override /callbacks: [default, ema]]\ncallbacks: {ema: {deca: .99}}": [
        "did you mean callbacks.ema.decay"
    ],
    "defaults: [override /logger: wandb]\nlogger: {wanbd: {project: x}}": ["logger.wanbd: there is no such key"],
    "defaults: [override /optimzier: sgd]": ["recipe/mine: there is no key optimzier", "did you mean optimizer?"],
    "defaults: [override /optimizer: adamm]": ["no optimizer=adamm", "did you mean adamw?"],
    "optimizer: {lrr: 1}": ["optimizer.lrr", "did you mean optimizer.lr?"],
    "crop: {trian: {flip_rate: 1}}": ["did you mean crop.train?"],
    "mixing: {rate: 1}": ["mixing.rate", "choose another mixing="],
    "model: vit_b16": ["model is vit_b16", "override /model: NAME"],
    "trainer: {max_epohcs: 1}": ["did you mean trainer.max_epochs?"],
    "seed: 1\nseed: 2": ["mine.yaml", "duplicate key seed"],
    "model: {a: [}": ["mine.yaml"],
    "compile: maybe": ["compile maybe is not true or false"],
}


STUDIES = [content for content in RECIPES if "emma" in content or "optimzier" in content or "seed" in content]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "content"), [*(("recipe", content) for content in RECIPES), *(("study", content) for content in STUDIES)]
)
def test_a_misspelt_key_in_a_recipe_or_a_study_is_refused(cli, tmp_path, group, content):
    (tmp_path / group).mkdir()
    (tmp_path / group / "mine.yaml").write_text(f"# @package _global_\n{content}\n")
    run = cli("train", f"--config-dir={tmp_path}", f"{group}=mine", folder="run")
    refused(run, *[word.replace("recipe/", f"{group}/") for word in RECIPES[content]])


def test_a_key_that_only_the_resumed_run_has_says_which_option_to_choose(cli, tmp_path):
    run = cli("train", "resume=run", "loss.gamma=0.5")
    assert refuses(run, "there is no key loss.gamma; ")
    assert refuses(run, "also choose the option that it has: loss=NAME, and --config-dir=DIR if it is your own")
    assert "loss=NAME" not in cli("train", "loss.gamma=0.5").err


def test_a_config_of_the_user_with_the_name_of_ours_is_refused(cli, tmp_path):
    """Hydra takes the first of two files of one name, which is ours."""
    own = tmp_path / "conf" / "loss" / "focal.yaml"
    own.parent.mkdir(parents=True)
    own.write_text((CONF / "loss" / "focal.yaml").read_text())
    assert cli("train", "--config-dir=conf", "loss=focal", "--cfg=job").status == 0
    own.write_text("_target_: mylab.focal\n_partial_: true\n")
    refused(
        cli("train", "--config-dir=conf", "loss=focal"),
        "conf/loss/focal.yaml has the name of a config of vitlab, which would be read instead; rename it",
    )


def test_a_recipe_that_says_no_package_is_refused(cli, tmp_path):
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe" / "mine.yaml").write_text("seed: 1\n")
    refused(cli("train", f"--config-dir={tmp_path}", "recipe=mine"), "# @package _global_")


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        (
            "callbacks/mine.yaml",
            "defaults: [default]\nbest: {_target_: vitlab.callbacks.BestModel}",
            "callbacks.best lacks keys that BestModel needs: monitor, mode",
        ),
        (
            "schedule/mine.yaml",
            "_target_: vitlab.optim.cosine\nwarmup_ratio: 0.1",
            "schedule lacks keys that cosine needs: warmup_steps, final_ratio; add it to its YAML, or set "
            "+schedule.warmup_steps=VALUE",
        ),
        (
            "schedule/mine.yaml",
            "_target_: vitlab.optim.cosine\n_partial_: true\nwarmup_ratio: 0.1\nwarmup_steps: null",
            "schedule lacks keys that cosine needs: final_ratio",
        ),
    ],
)
def test_a_key_that_is_missing_in_a_users_yaml_is_named(cli, tmp_path, file, content, told):
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_text(content)
    refused(cli("train", f"--config-dir={tmp_path}", f"{file.split('/')[0]}=mine", "logger=none", tiny=False), told)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("globl_batch_size: 1", ["did you mean global_batch_size?"]),
        ("callbacks: {emma: {decay: .99}}", ["did you mean callbacks.ema?"]),
        ("hydra: {sweeper: {parms: {seed: '0,1'}}}", ["hydra.sweeper.parms", "did you mean hydra.sweeper.params?"]),
        ("hydra: {sweeper: {params: {sed: '0,1'}}}", ["no key sed", "did you mean seed?"]),
        ("hydra: {sweeper: {params: {trainer.max_epohs: '0,1'}}}", ["did you mean trainer.max_epochs?"]),
    ],
)
def test_a_misspelt_key_ends_a_sweep_before_its_first_job(cli, tmp_path, content, words):
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "mine.yaml").write_text(f"# @package _global_\n{content}\n")
    refused(cli("train", "-m", f"--config-dir={tmp_path}", "study=mine", "seed=0,1"), *words)
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").glob("*/*/*/"))


def test_a_value_that_a_job_would_be_refused_for_ends_a_sweep_before_its_first_job(cli, tmp_path):
    refused(cli("train", "-m", "seed=0,-1"), "seed -1 is not a whole number from 0 to 4294967295")
    assert not list(tmp_path.glob("runs/*/*"))


SYNTHETIC = ["data=synthetic", "data.source.num_samples=200"]
STOPPING = "callbacks=[default,early_stopping]"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["seed=-1"], ["seed -1", "4294967295"]),
        (["seed=12345678901234567890123"], ["seed 12345678901234567890123"]),
        (["seed=null"], ["seed null"]),
        (["name=''"], ["name ''"]),
        (["monitor=null"], ["monitor null is not a name"]),
        (["compile=maybe"], ["compile maybe is not true or false"]),
        (["activation_checkpointing=2"], ["activation_checkpointing 2 is not true or false"]),
        (["global_batch_size=0"], ["global_batch_size 0"]),
        (["data.num_classes=0"], ["data.num_classes"]),
        ([*SYNTHETIC, "data.num_classes=0"], ["num_classes 0"]),
        ([*SYNTHETIC, "data.num_classes=1000000000"], ["num_classes 1000000000"]),
        (["data.num_classes=1e9"], ["data.num_classes", "whole number"]),
        (["data=synthetic", "data.source.num_samples=0"], ["num_samples 0"]),
        (["data=synthetic", "data.source.num_samples=-1"], ["num_samples -1"]),
        ([*SYNTHETIC, "data.source.noise=nan"], ["data.source.noise nan is not finite"]),
        ([*SYNTHETIC, "data.source.noise=-1"], ["noise -1"]),
        (["data.image_size=1000000"], ["data.image_size 1000000", "GiB"]),
        (["data.image_size=1000000", "model=resnet20"], ["data.image_size 1000000", "GiB"]),
        (["data.loading.num_workers=100000"], ["data.loading.num_workers 100000"]),
        (["data.std=[-1]"], ["data.std [-1]"]),
        (["data.std=[0]"], ["data.std [0]"]),
        (["data.mean=[nan]"], ["data.mean [nan] is not finite"]),
        (["data.mean=0.5"], ["data.mean 0.5 is not a list of numbers"]),
        (["model.pretrained=''"], ["model.pretrained ''"]),
        (["model.pretrained_partial=maybe"], ["model.pretrained_partial maybe is not true or false"]),
        (["model.embed_dim=1000000"], ["GiB"]),
        (["data.images.train_transform.degrees=nan"], ["data.images.train_transform.degrees nan"]),
        ([STOPPING, "callbacks.early_stopping.patience=-1"], ["patience -1"]),
        (["callbacks.latest_state=null"], ["callbacks.latest_state is null", "every_n_steps"]),
        (["~callbacks.latest_state"], ["callbacks.latest_state is missing", "every_n_steps"]),
        (["callbacks.progress=null"], ["callbacks.progress is null", "~callbacks.progress"]),
        (["trainer.precision=64"], ["trainer.precision=64", "32-true"]),
        (["trainer.precision=64-true"], ["trainer.precision=64-true", "32-true"]),
        (["data.images.train_transform.interpolation=abc"], ["data.images.train_transform", "abc", "bilinear"]),
        (
            ["data.images.train_transform=abc"],
            ["data.images.train_transform abc is not what a _target_ builds or null"],
        ),
        (["optimizer.algorithm.betas=abc"], ["optimizer.algorithm"]),
        (["optimizer.algorithm.betas=[0.9]"], ["optimizer.algorithm"]),
        (["trainer.accelerator=tpu"], ["trainer.accelerator is tpu, but this machine has only auto, cpu"]),
        (["trainer.accelerator=nope"], ["trainer", "nope"]),
        (["trainer.strategy=nope"], ["trainer", "nope"]),
        (["trainer.devices=0"], ["trainer"]),
        (["trainer.log_every_n_steps=0"], ["trainer.log_every_n_steps 0"]),
        (["trainer.log_every_n_steps=-1"], ["trainer.log_every_n_steps -1"]),
        (["trainer.val_check_interval=0"], ["trainer.val_check_interval 0"]),
        (["+trainer.val_check_interval=0"], ["trainer.val_check_interval 0"]),
        (["trainer.val_check_interval=10000"], ["trainer.val_check_interval 10000", "19 batches"]),
        (["trainer.check_val_every_n_epoch=0"], ["trainer.check_val_every_n_epoch 0"]),
        (["trainer.limit_train_batches=0"], ["trainer.limit_train_batches 0"]),
        (["+trainer.limit_train_batches=0"], ["trainer.limit_train_batches 0"]),
        (["trainer.limit_train_batches=0.001"], ["trainer.limit_train_batches 0.001 of 19 batches"]),
        (["trainer.limit_val_batches=0.001"], ["trainer.limit_val_batches 0.001 of 3 batches"]),
        (["trainer.num_nodes=2"], ["trainer.num_nodes=2", "torchrun --nnodes=2"]),
        (["loss=none"], ["task.loss is empty; choose an option of its group that has a _target_"]),
        (["trainer.max_steps=0", "trainer.max_epochs=-1"], ["a run of 0 steps trains nothing; set trainer.max_epochs"]),
        (["trainer.max_epochs=0"], ["a run of 0 steps trains nothing"]),
        (["schedule.warmup_ratio=-0.1"], ["schedule.warmup_ratio -0.1 is not a number from 0 to 1 or null"]),
        (["optimizer=sgd", "optimizer.algorithm.momentum=2"], ["optimizer.algorithm.momentum 2 is not a number"]),
        (["optimizer.algorithm.betas=[0.9]"], ["optimizer.algorithm.betas [0.9] is not a list of 2 numbers"]),
        (["model.layer_scale=-1"], ["model.layer_scale -1 is not a number of at least 0"]),
        (["mixing=mixup", "mixing.mixup_alpha=-1"], ["mixing.mixup_alpha -1 is not a number above 0"]),
        (["model.depth=100000000"], ["model.depth 100000000 is not a whole number from 1 to 1000"]),
        (["trainer.num_nodes=0"], ["trainer.num_nodes 0"]),
        (["trainer.use_distributed_sampler=true"], ["trainer.use_distributed_sampler"]),
        (["trainer.default_root_dir=x"], ["trainer.default_root_dir", "hydra.run.dir"]),
        (["trainer.logger=true"], ["trainer.logger", "logger="]),
        (["trainer.max_time=3"], ["trainer"]),
    ],
    ids=lambda value: value[-1] if len(value[-1]) < 60 else None,
)
def test_a_value_that_cannot_be_is_refused_before_work(cli, overrides, words):
    refused(cli("train", *overrides, folder="run"), *words)


def test_keys_of_the_trainer_need_no_plus(cli):
    options = ["trainer.limit_train_batches=2", "trainer.val_check_interval=1", "+trainer.limit_val_batches=1"]
    run = cli("train", *options, "trainer.max_epochs=1", "global_batch_size=256", folder="run")
    assert run.status == 0, run.err
    assert "limit_train_batches, limit_val_batches" in run.out
    run = cli("evaluate", "run=run", "trainer.limit_test_batches=1")
    assert run.status == 0, run.err
    assert "limit_test_batches" in run.out


OF_A_RUN = {
    "evaluate": [
        "num_worst=0",
        "num_worst=null",
        "split=dev",
        "trainer.devices=0",
        "trainer.limit_test_batchs=1",
        "trainer.limit_test_batches=0",
        "+data.image_sze=3",
        "data=[1]",
        "output=''",
        "+seed=1",
    ],
    "predict": ["top_k=0", "top_k=1.5", "batch_size=a", "on_bad_image=x", "images=''", "topk=1", "output=''"],
    "visualize": ["images=x num_images=0", "views=[x]", "images=x num_images=[1]", "vews=[x]", "views=3"],
    "export": ["output=x format=x", "output=x fromat=timm", "output=''", "format=timm"],
    "features": [
        "output=f.npz batch_size=0",
        "output=f",
        "output=f.npz split=x",
        "output=f.npz precision=x",
        "output=f.npz seed=-1",
        "output=f.npz +data.image_sze=3",
        "output=f.npz data=nope",
        "batch_size=3",
    ],
    "probe": [
        "k=3",
        "k=[0]",
        "k=[a]",
        "shots=[1.5]",
        "draws=0",
        "temperature=nan",
        "temperature=0",
        "seed=x",
        "l2_exponents=[1000]",
        "l2_exponents=[]",
        "k=[] shots=[]",
        "precision=x",
        "batch_size=true",
    ],
}
OF_A_CONFIG = {
    "preview": [
        "num_images=0",
        "same=-1",
        "same=x",
        "data.image_size=28 model=vit_xs8",
        "seed=-1",
        "compile=maybe",
        "data.cache.kind=x",
        "model.depht=1",
        "data.std=[0]",
        "global_batch_size=5000",
        "optimizer.lrr=1",
        "resume=''",
    ],
    "summary": [
        "memory_gib=0",
        "memory_gib=nan",
        "precision=x",
        "tensors=2",
        "model.num_heads=5",
        "modle=x",
        "data.image_size=30",
        "optimizer.lr=-1",
        "model.depth=0",
        "data.image_size=a",
        "activation_checkpointing=x",
    ],
    "survey": ["data.num_classes=3", "data.std=[nan]", "data.cache.kind=x", "seed=-1", "output=''", "data.source.x=1"],
    "pack": [
        "output=x data=digits shard_size=0",
        "output=x data=digits shorter_side=0",
        "output=x shard_size=nan",
        "data=digits",
        "output=x data=digits data.loading.on_bad_image=x",
        "output=x data=dgits",
        "outptu=x",
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entry", "words"),
    [(entry, words) for entry, cases in {**OF_A_RUN, **OF_A_CONFIG}.items() for words in cases],
    ids=lambda value: value,
)
def test_every_entry_refuses_bad_values_in_a_sentence(cli, digits_run, entry, words):
    before = sorted(digits_run.rglob("*"))
    given = words.split()
    own = [f"run={digits_run}"] if entry in OF_A_RUN else []
    if entry == "predict" and not any(word.startswith("images=") for word in given):
        own.append("images=x")
    refused(cli(entry, *own, *given))
    assert sorted(digits_run.rglob("*")) == before


def test_the_trainers_keys_are_those_of_lightning():
    import inspect

    import pytorch_lightning as pl

    from vitlab.config.keys import trainer_keys

    assert set(trainer_keys()) == {"_target_", *inspect.signature(pl.Trainer).parameters}


def test_a_typo_is_refused_before_anything_heavy_is_loaded(tmp_path):
    """In a process of its own, by what it has imported in the end."""
    code = "import runpy, sys\ntry: runpy.run_path(sys.argv[0], run_name='__main__')\n"
    code += (
        "except SystemExit as end: print(end.code, sorted({'torch', 'pytorch_lightning', 'wandb'} & set(sys.modules)))"
    )
    for word in ("modle=x", "trainer.max_epohcs=3", "+globl_batch_size=1", "seed=-1"):
        arguments = [str(SRC / "train.py"), *chosen(*TINY, word)]
        script = f"import sys; sys.argv = {arguments!r}; sys.path.insert(0, {str(SRC)!r})\n{code}"
        done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
        assert done.stdout.strip() == "2 []", done.stderr


def test_a_group_of_other_commands_is_not_told_to_be_misspelt(cli):
    run = cli("survey", "task=answering", tiny=False)
    assert refuses(run, "this command takes no task; leave it out"), run.err
