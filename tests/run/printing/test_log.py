"""train.log holds what a run has printed."""

from conftest import FEW


def test_the_log_tells_of_the_run_from_its_start_to_its_result(short_run):
    text = (short_run / "train.log").read_text()
    assert "28,458 parameters" in text
    assert text.count("epoch 1  step 4/8") == text.count("epoch 2  step 8/8") == 1
    assert text.index("start") < text.index("epoch 1") < text.index("best val/acc1") < text.index("go on")


def test_the_log_of_a_run_that_fails_says_why(cli):
    run = cli("train", "optimizer.lr=1e30", "trainer.gradient_clip_val=null", *FEW, folder="run")
    assert run.status == 5
    assert run.err.strip() in (run.folder / "train.log").read_text()
