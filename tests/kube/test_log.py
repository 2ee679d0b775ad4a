"""Log lines, and the flags that say which are written where."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hekla.kube import log as logs
from hekla.kube.flags import FlagError, parse


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """The process's logging as it was before."""
    root = logging.getLogger()
    handlers, level, kind = list(root.handlers), root.level, logging.getLoggerClass()
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.setLoggerClass(kind)


def set_up(*argv: str) -> None:
    logs.set_up(parse(logs.FLAGS, argv), "tester")


def test_a_line_says_how_bad_when_where_and_what(capsys: pytest.CaptureFixture[str]) -> None:
    set_up()
    logging.getLogger("hekla.kube.cache").warning("pods cannot be %s", "watched")
    logging.getLogger("hekla.kube.cache").debug("not shown")
    assert re.fullmatch(
        r"W\d{4} \d\d:\d\d:\d\d\.\d{3} kube\.cache\] pods cannot be watched\n",
        capsys.readouterr().err,
    )


@pytest.mark.parametrize(
    ("verbosity", "shown"),
    [
        ("0", "info"),
        ("2", "verbose info"),
        ("4", "debug verbose info"),
        ("6", "trace debug verbose info"),
    ],
)
def test_more_verbosity_shows_more(
    capsys: pytest.CaptureFixture[str], verbosity: str, shown: str
) -> None:
    set_up(f"-v={verbosity}", "--skip_headers")
    log = logging.getLogger("hekla.test")
    for level, word in (
        (logs.TRACE, "trace"),
        (logging.DEBUG, "debug"),
        (logs.VERBOSE, "verbose"),
        (logging.INFO, "info"),
    ):
        log.log(level, word)
    assert capsys.readouterr().err.split() == shown.split()


def test_a_module_may_be_more_verbose_than_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    set_up("--vmodule=chatty*=4,other=2", "--skip_headers")
    logging.getLogger("hekla.kube.chatty_one").debug("heard")
    logging.getLogger("hekla.kube.quiet").debug("not heard")
    assert capsys.readouterr().err == "heard\n"
    with pytest.raises(FlagError, match="'cache': expected pattern=N"):
        set_up("--vmodule=cache")


def test_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    set_up("--logtostderr=false", f"--log_dir={tmp_path}", "--skip_headers")
    logging.getLogger("hekla.test").info("to the file")
    assert (tmp_path / "tester.log").read_text() == "to the file\n"
    assert capsys.readouterr().err == ""
    set_up(
        "--logtostderr=false",
        "--alsologtostderr",
        f"--log_file={tmp_path}/other",
        "--stderrthreshold=ERROR",
        "--skip_headers",
    )
    logging.getLogger("hekla.test").info("only to the file")
    logging.getLogger("hekla.test").error("to both")
    assert (tmp_path / "other").read_text() == "only to the file\nto both\n"
    assert capsys.readouterr().err == "to both\n"
    with pytest.raises(FlagError, match="--log_file: /not/there/x: No such file or directory"):
        set_up("--logtostderr=false", "--log_file=/not/there/x")


def test_an_exception_comes_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    set_up("--skip_headers")
    try:
        raise ValueError("a bug")
    except ValueError:
        logging.getLogger("hekla.test").exception("it failed")
    text = capsys.readouterr().err
    assert text.startswith("it failed\nTraceback")
    assert text.endswith("ValueError: a bug\n")
