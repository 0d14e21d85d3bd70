import sys
from pathlib import Path

from tests.support.stages import report, run

JUNIT = """<testsuites><testsuite><testcase classname="tests.a" name="test_quick" time="0.1"/>
<testcase classname="tests.a" name="test_slow" time="7.25"/></testsuite></testsuites>"""


def test_a_report_names_each_stage_of_the_run_what_failed_and_the_slowest_tests(tmp_path: Path) -> None:
    assert run("first", [sys.executable, "-c", ""], tmp_path) == 0
    assert run("second", [sys.executable, "-c", "exit(3)"], tmp_path) == 3
    (tmp_path / "junit").mkdir()
    (tmp_path / "junit" / "second.xml").write_text(JUNIT)
    _, first, second, _, *tests = [line.split() for line in report(tmp_path)]
    assert (first[0], second[0], second[-1]) == ("first", "second", "failed")
    assert "failed" not in first
    assert tests == [["7.2", "tests.a::test_slow"], ["0.1", "tests.a::test_quick"]]
