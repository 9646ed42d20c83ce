"""The energy that a machine tells of itself."""

from vitlab import machine


def test_the_energy_of_processors_is_summed_and_that_of_their_parts_is_not_counted_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "POWERCAP", tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)  # no GPU tells
    assert machine.read_energy() is None
    for name, used in {"intel-rapl:0": 5_000_000, "intel-rapl:1": 250_000, "intel-rapl:0:0": 3_000_000}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text(f"{used}\n")
    assert machine.read_energy() == 5.25
