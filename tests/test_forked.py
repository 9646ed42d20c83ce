"""Commands are forked from a server that has loaded the libraries once."""

from forked import SERVER, forked, start_server


def loaded(queue):
    import sys

    queue.put("vitlab.programs.train" in sys.modules)


def test_the_server_has_loaded_the_programs():
    start_server()
    queue = SERVER.SimpleQueue()
    child = SERVER.Process(target=loaded, args=(queue,))
    child.start()
    child.join()
    assert queue.get()


def test_a_command_gives_its_status_and_what_it_printed(tmp_path):
    run = forked("check", ["model=nobody"], tmp_path)
    assert run.status == 2
    assert run.err.strip().startswith("ConfigError: ")
