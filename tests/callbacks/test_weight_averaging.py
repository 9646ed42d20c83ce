"""What all averages of weights share: exact resume, and that there is one. tests/test_resume.py kills in mid-epoch."""

from types import SimpleNamespace

import pytest
import pytorch_lightning as pl
import torch
from line import EPOCHS, STEPS, Line, fitted
from one_process import one_process
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from vitlab.callbacks import EMA, SWA, ChecksRun, LatestState
from vitlab.distributed.sharding import fill, unshard_tensor
from vitlab.errors import ConfigError

AVERAGES = {
    "ema": lambda: EMA(decay=0.7, start_step=0),
    "late_ema": lambda: EMA(decay=0.7, start_step=6),
    "swa": lambda: SWA(start_ratio=0.2, every_n_steps=3),  # 2, 5, 8, 11
    "late_swa": lambda: SWA(start_ratio=0.5, every_n_steps=1),
}


def same(a, b):
    """Whether two nested states are equal, bit for bit."""
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a == b


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", AVERAGES)
def test_a_run_resumed_from_its_midst_is_the_uninterrupted_one(tmp_path, name):
    """Before the average has begun, and after."""
    (tmp_path / "whole").mkdir()
    whole = fitted(tmp_path / "whole", AVERAGES[name]())
    for step in (STEPS, 2 * STEPS):
        folder = tmp_path / f"from{step}"
        folder.mkdir()
        resumed = fitted(folder, AVERAGES[name](), resume=tmp_path / "whole" / f"{step}.ckpt")
        assert min(resumed.validated) == step + STEPS
        for later in resumed.validated:
            assert torch.equal(resumed.validated[later], whole.validated[later])
        last = f"{EPOCHS * STEPS}.ckpt"
        states = [torch.load(path / last, weights_only=True) for path in (folder, tmp_path / "whole")]
        for key in ("state_dict", "current_model_state", "averaging_state", "callbacks"):
            assert same(states[0][key], states[1][key]), key


def check_all(*callbacks):
    """As a run of 12 steps does before it starts."""
    for callback in callbacks:
        if isinstance(callback, ChecksRun):
            callback.check_run(SimpleNamespace(callbacks=list(callbacks)), SimpleNamespace(num_steps=12), None)


def test_only_one_average_can_take_the_place_of_the_weights():
    latest = LatestState(every_n_steps=1, every_n_minutes=None, keep_every_n_steps=None, keep_states=0, copy_to=None)
    check_all(latest, AVERAGES["ema"]())
    check_all(latest, AVERAGES["swa"]())
    with pytest.raises(ConfigError, match="leave out one of them"):
        check_all(
            AVERAGES["ema"](),
            latest,
            AVERAGES["swa"](),
        )
    with pytest.raises(ConfigError, match="nothing would be averaged"):
        check_all(SWA(start_ratio=0.0, every_n_steps=13))


class Saving(pl.Callback):
    """Saves a checkpoint whenever Lightning says something, as <moment>.ckpt."""

    def __init__(self, folder, *moments):
        for moment in moments:
            setattr(
                self, moment, lambda trainer, *args, moment=moment: trainer.save_checkpoint(folder / f"{moment}.ckpt")
            )


def check_both(path, model, step):
    """The average of a Line after a step, and its weights, each in its place."""
    saved, after = torch.load(path, weights_only=True), model.after_step
    mean = after[1]
    for number in range(2, step + 1):
        mean = torch.lerp(mean, after[number], 1 - 0.7)
    assert torch.equal(saved["state_dict"]["layer.weight"], mean)
    assert torch.equal(saved["current_model_state"]["layer.weight"], after[step])
    assert int(saved["averaging_state"]["n_averaged"]) == step


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(
    "moment",
    ["on_validation_batch_start", "on_validation_epoch_end", "on_validation_end", "on_train_end", "on_fit_end"],
)
def test_whenever_a_checkpoint_is_saved_it_has_both_in_their_places(tmp_path, moment, before):
    saving = Saving(tmp_path, moment)
    model = fitted(tmp_path, AVERAGES["ema"](), others=[saving] if before else [pl.Callback(), saving])
    check_both(tmp_path / f"{moment}.ckpt", model, EPOCHS * STEPS)


class Seeing(pl.Callback):
    """Looks at the weights when a validation has no batch left, as what draws the validated model does."""

    def on_validation_epoch_end(self, trainer, pl_module):
        self.seen = pl_module.weight()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("before", [True, False])
def test_what_draws_a_validated_model_sees_the_average_whichever_callback_is_first(tmp_path, before):
    seeing = Seeing()
    model = fitted(tmp_path, AVERAGES["ema"](), others=[seeing] if before else [pl.Callback(), seeing])
    assert torch.equal(seeing.seen, model.validated[EPOCHS * STEPS])
    assert not torch.equal(seeing.seen, model.after_step[EPOCHS * STEPS])


class Breaking(Line):
    """Stops in the midst of the second validation."""

    error: type[BaseException] = RuntimeError

    def validation_step(self, batch, batch_idx):
        super().validation_step(batch, batch_idx)
        if batch_idx and self.global_step == 2 * STEPS:
            raise self.error("stopped")


class Stopping(Breaking):
    error = KeyboardInterrupt


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("kind", [Breaking, Stopping])
def test_a_validation_that_breaks_off_leaves_the_weights_in_their_place(tmp_path, kind, before):
    saving, made = Saving(tmp_path, "on_exception"), []
    with pytest.raises((RuntimeError, SystemExit, KeyboardInterrupt)):
        fitted(
            tmp_path,
            AVERAGES["ema"](),
            kind=lambda *args: made.append(kind(*args)) or made[0],
            others=[saving] if before else [pl.Callback(), saving],
        )
    assert not torch.equal(made[0].validated[2 * STEPS], made[0].after_step[2 * STEPS])
    assert torch.equal(made[0].weight(), made[0].after_step[2 * STEPS])
    check_both(tmp_path / "on_exception.ckpt", made[0], 2 * STEPS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("tensor", range(8))  # four for the averages, and four back
def test_a_swap_that_breaks_off_leaves_the_weights_in_their_place(tmp_path, monkeypatch, tensor):
    made, filled = [], []

    def breaking(own, value):
        filled.append(own)
        if len(filled) == tensor + 1:
            raise KeyboardInterrupt
        fill(own, value)

    monkeypatch.setattr("vitlab.callbacks.weight_averaging.fill", breaking)
    with pytest.raises((SystemExit, KeyboardInterrupt)):
        fitted(
            tmp_path,
            AVERAGES["ema"](),
            kind=lambda *args: made.append(Line(*args)) or made[0],
            others=[Saving(tmp_path, "on_exception")],
        )
    assert torch.equal(made[0].weight(), made[0].after_step[STEPS])
    check_both(tmp_path / "on_exception.ckpt", made[0], STEPS)


class Sharded(Line):
    """Its parameters are replaced by parts of them, after the callbacks were set up. Each layer is a root of its own,
    and stays gathered after a forward pass that has no backward pass."""

    def configure_model(self):
        mesh = init_device_mesh("cpu", (1,))
        for layer in (self.norm, self.layer):
            fully_shard(layer, mesh=mesh)

    def weight(self):
        return unshard_tensor(self.layer.weight).detach().clone()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", AVERAGES)
def test_sharded_weights_are_averaged_validated_and_saved_like_whole_ones(tmp_path, name):
    (tmp_path / "whole").mkdir()
    (tmp_path / "sharded").mkdir()
    plain = fitted(tmp_path / "whole", AVERAGES[name]())
    with one_process():
        sharded = fitted(tmp_path / "sharded", AVERAGES[name](), kind=Sharded)
        assert isinstance(sharded.layer.weight, DTensor)
        for seen in ("after_step", "validated", "outputs", "restored"):
            assert same(getattr(sharded, seen), getattr(plain, seen)), seen
        assert torch.equal(sharded.weight(), plain.weight())
    for step in (STEPS, 2 * STEPS, 3 * STEPS):
        states = [torch.load(tmp_path / kind / f"{step}.ckpt", weights_only=True) for kind in ("whole", "sharded")]
        for key in ("state_dict", "current_model_state", "averaging_state"):
            assert same(states[0][key], states[1][key]), key
        assert not any(isinstance(value, DTensor) for value in states[1]["state_dict"].values())


class Stateless(Line):
    """Its optimizer has no state, which a strategy would have to shard."""

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Resumed(Sharded, Stateless):
    """Lightning's strategies for sharded models read the weights into what is sharded already."""

    def load_state_dict(self, state, **options):
        for name, value in self.state_dict().items():
            fill(value, state[name])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", AVERAGES)
def test_sharded_weights_resume_from_whole_ones(tmp_path, name):
    plain = fitted(tmp_path, AVERAGES[name](), kind=Stateless)
    (tmp_path / "resumed").mkdir()
    with one_process():
        resumed = fitted(tmp_path / "resumed", AVERAGES[name](), kind=Resumed, resume=tmp_path / f"{2 * STEPS}.ckpt")
        assert torch.equal(resumed.validated[3 * STEPS], plain.validated[3 * STEPS])
        assert torch.equal(resumed.weight(), plain.weight())


class Tied(Line):
    """One weight under two names."""

    def __init__(self, *args):
        super().__init__(*args)
        self.copy = torch.nn.Linear(3, 1)
        self.copy.weight = self.layer.weight


@pytest.mark.filterwarnings("ignore")
def test_a_weight_with_two_names_is_one(tmp_path):
    saving = Saving(tmp_path, "on_validation_end")
    model = fitted(tmp_path, AVERAGES["ema"](), kind=Tied, others=[saving])
    check_both(tmp_path / "on_validation_end.ckpt", model, EPOCHS * STEPS)
    saved = torch.load(tmp_path / "on_validation_end.ckpt", weights_only=True)
    for key in ("state_dict", "current_model_state"):
        assert torch.equal(saved[key]["copy.weight"], saved[key]["layer.weight"])


@pytest.mark.filterwarnings("ignore")
def test_a_second_fit_averages_its_own_weights(tmp_path):
    """One callback may serve several fits; nothing of an earlier model gets into a later one."""
    average = AVERAGES["ema"]()
    first, second = fitted(tmp_path, average), fitted(tmp_path, average)
    assert same(first.validated, second.validated)
    assert torch.equal(first.weight(), second.weight())


class Following(Line):
    """A weight that takes no gradient and moves all the same, as that of a teacher who follows the student."""

    def __init__(self, *args):
        super().__init__(*args)
        self.follower = torch.nn.Parameter(torch.zeros(1, 3), requires_grad=False)
        self.followed = {}

    def on_train_batch_start(self, batch, batch_idx):
        self.followed[self.global_step] = self.follower.clone()

    def optimizer_step(self, *args, **kwargs):
        super().optimizer_step(*args, **kwargs)
        self.follower.lerp_(self.layer.weight.detach(), 0.5)


@pytest.mark.filterwarnings("ignore")
def test_a_weight_that_follows_others_is_averaged_and_resumed_like_them(tmp_path):
    whole = fitted(tmp_path, AVERAGES["ema"](), kind=Following)
    saved = torch.load(tmp_path / f"{STEPS}.ckpt", weights_only=True)
    assert torch.equal(saved["current_model_state"]["follower"], whole.followed[STEPS])
    assert not torch.equal(saved["state_dict"]["follower"], whole.followed[STEPS])
    (tmp_path / "resumed").mkdir()
    resumed = fitted(tmp_path / "resumed", AVERAGES["ema"](), kind=Following, resume=tmp_path / f"{STEPS}.ckpt")
    assert resumed.followed.keys() == set(range(STEPS, EPOCHS * STEPS))
    assert all(torch.equal(value, whole.followed[step]) for step, value in resumed.followed.items())
    assert torch.equal(resumed.follower, whole.follower)


class Counting(Line):
    """A buffer that a validation moves."""

    def __init__(self, *args):
        super().__init__(*args)
        self.register_buffer("seen", torch.zeros(()))

    def validation_step(self, batch, batch_idx):
        super().validation_step(batch, batch_idx)
        self.seen += 1


@pytest.mark.filterwarnings("ignore")
def test_buffers_are_resumed_as_training_had_them(tmp_path):
    fitted(tmp_path, AVERAGES["ema"](), kind=Counting)
    path = tmp_path / f"{STEPS}.ckpt"
    saved = torch.load(path, weights_only=True)
    assert saved["state_dict"]["seen"] == saved["current_model_state"]["seen"] == 2  # batches
    saved["state_dict"]["seen"] = torch.tensor(7.0)  # earlier versions: those that a validation had moved
    torch.save(saved, path)
    (tmp_path / "resumed").mkdir()
    assert fitted(tmp_path / "resumed", AVERAGES["ema"](), kind=Counting, resume=path).seen == EPOCHS * 2
