from vitlab.machine import ONEDNN, describe_arithmetic, find_onednn_instructions
from vitlab.verification.pinning import FACTS, describe_machine_differences, pin


def test_on_the_same_machine_nothing_is_pinned_but_the_threads_that_were_set(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    own = describe_arithmetic(1)
    assert pin(own, own, {"HOME": "/"}) == {"HOME": "/", "OMP_NUM_THREADS": "1"}
    assert describe_machine_differences(own, own) == "" or own["gpus"]
    assert FACTS.keys() | {"threads_set"} == own.keys()


def test_fewer_instructions_and_other_threads_are_pinned():
    own = describe_arithmetic(1) | {"threads": 2, "threads_set": None, "instructions": "AVX512"}
    own |= {"onednn_instructions": "AVX512_CORE"}
    recorded = own | {"threads": 4, "instructions": "AVX2", "onednn_instructions": "AVX2"}
    pinned = pin(recorded, own, {})
    assert pinned == {"OMP_NUM_THREADS": "4", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    assert describe_machine_differences(recorded, recorded | {"torch": "9"}) == f"torch 9 instead of {own['torch']}"


def test_the_order_of_sums_in_mkl_is_pinned():
    own = describe_arithmetic(1) | {"threads_set": None, "mkl_order": "AVX2"}
    recorded = own | {"mkl_order": "COMPATIBLE"}
    assert pin(recorded, own, {"MKL_CBWR": "AVX2"}) == {"MKL_CBWR": "COMPATIBLE"}
    unset = {name: value for name, value in own.items() if name != "mkl_order"}  # as earlier versions recorded
    assert pin(unset, own, {"MKL_CBWR": "AVX2"}) == {}


def test_the_instructions_of_onednn_are_the_newest_that_it_may_use(monkeypatch):
    monkeypatch.setattr("vitlab.machine.cpu_capabilities", lambda: dict.fromkeys(["avx512_bw", "avx2", "avx"], True))
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    assert find_onednn_instructions() == "AVX512_CORE"
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "avx2_vnni")
    assert find_onednn_instructions() == "AVX2"
    assert list(ONEDNN).index("avx512_bw") < list(ONEDNN).index("avx2")
