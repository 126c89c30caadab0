"""The parts of `make test`: all of them run, whatever fails, and the status says whether one failed."""

import pytest
import run_tests


def arguments(*, is_isolated: bool) -> dict[str, tuple[str, ...]]:
    return {part.name: part.arguments for part in run_tests.parts(["--all"], is_isolated=is_isolated)}


@pytest.mark.parametrize("is_isolated", [True, False])
def test_every_functional_test_is_in_one_part(is_isolated):
    selections = [
        words[words.index("-m") + 1] if "-m" in words else ""
        for name, words in arguments(is_isolated=is_isolated).items()
        if "tests/functional" in words
    ]
    assert selections == (["machine", "not machine"] if is_isolated else [""])


def test_a_machine_that_cannot_isolate_workers_has_one_for_functional_tests():
    assert not {"-n", "--tx"} & set(arguments(is_isolated=False)["functional"])


@pytest.mark.parametrize("is_isolated", [True, False])
def test_each_part_gets_the_arguments_of_the_command_line(is_isolated):
    assert all("--all" in words for words in arguments(is_isolated=is_isolated).values())


@pytest.mark.parametrize(("failing", "status"), [("none", 0), ("unit", 1), ("functional", 1)])
def test_a_failure_in_one_part_keeps_no_other_from_running(monkeypatch, capsys, failing, status):
    ran = []

    def run(part: run_tests.Part, _output: object) -> run_tests.End:
        ran.append(part.name)
        return run_tests.End(part, part.name != failing, 1.0)

    monkeypatch.setattr(run_tests, "run", run)
    monkeypatch.setattr(run_tests, "prepare", lambda: None)
    assert run_tests.main([]) == status
    assert {"unit", "functional"} <= {*ran}
    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines() if "FAILED" in line] == (
        [f"{failing}: FAILED"] if status else []
    )


@pytest.mark.parametrize(("common", "beside"), [((), 2), (("--all",), 0), (("--slow-of=1/4",), 0)])
def test_only_fast_tests_run_beside_others(common, beside):
    assert sum(part.is_beside for part in run_tests.parts(common, is_isolated=True)) == beside


def test_a_part_runs_beside_the_others_and_its_output_follows(capfd, tmp_path):
    """The first one waits for a file of the second one."""
    made = tmp_path / "made"
    (tmp_path / "test_first.py").write_text(
        "import time, pathlib\n"
        f"def test_waits():\n    while not pathlib.Path({str(made)!r}).exists():\n        time.sleep(0.01)\n"
        "    assert False, 'first'\n"
    )
    (tmp_path / "test_second.py").write_text(
        f"import pathlib\ndef test_makes():\n    pathlib.Path({str(made)!r}).touch()\n    assert False, 'second'\n"
    )
    options = ("-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-c", "/dev/null")
    first = run_tests.Part("first", (str(tmp_path / "test_first.py"), *options), is_beside=True)
    second = run_tests.Part("second", (str(tmp_path / "test_second.py"), *options))
    ends = run_tests.run_all([first, second])
    assert [(end.part.name, end.passed) for end in ends] == [("second", False), ("first", False)]
    out = capfd.readouterr().out
    assert out.index("== second") < out.index("== first") < out.index("AssertionError: first")


def test_a_file_is_refused_because_each_part_has_its_own(capsys):
    with pytest.raises(SystemExit) as refused:
        run_tests.main([f"{__file__}::test_x"])
    assert refused.value.code == 2
    assert f"run `make test ARGS={__file__}::test_x`" in capsys.readouterr().err
