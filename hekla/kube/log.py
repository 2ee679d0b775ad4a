"""Log lines in klog's format, so that tools for Kubernetes' logs can read them: severity and date,
time, module, message.

`-v N` shows more: 2 and 3 what a daemon does, 4 and 5 why it decided so, 6 and above every request.
"""

from __future__ import annotations

import fnmatch
import logging
import sys
import time
from pathlib import Path

from hekla.kube.flags import (
    NUMBER,
    SECONDS,
    TEXT,
    WHOLE,
    YES_NO,
    Flag,
    FlagError,
    Options,
    at_least,
    one_of,
)

VERBOSE = 15
TRACE = 5
SEVERITIES = {
    "INFO": logging.INFO,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
LETTERS = ((logging.CRITICAL, "F"), (logging.ERROR, "E"), (logging.WARNING, "W"), (0, "I"))
MEGABYTE = 1 << 20

FLAGS = (
    Flag("v", WHOLE, 0, "number for the log level verbosity", short="v"),
    Flag("vmodule", TEXT, "", "comma-separated list of pattern=N settings for modules whose verbosity differs"),
    Flag("logtostderr", YES_NO, True, "log to standard error instead of files"),
    Flag("alsologtostderr", YES_NO, False, "log to standard error as well as files"),
    Flag("log_dir", TEXT, "", "write log files in this directory (with --logtostderr=false)"),
    Flag("log_file", TEXT, "", "write the log to this file (with --logtostderr=false)"),
    Flag("log_file_max_size", NUMBER, 1800.0, "size in MB at which a log file is started anew; 0: never", check=at_least(0)),
    Flag("stderrthreshold", TEXT, "INFO", "log at or above this severity to standard error",
         check=lambda value: one_of(*SEVERITIES)(value.upper())),
    Flag("skip_headers", YES_NO, False, "leave out the header of each line"),
    Flag("log-flush-frequency", SECONDS, 5.0, "accepted for compatibility; every line is flushed at once"),
)  # fmt: skip


class Formatter(logging.Formatter):
    """`I1121 14:02:11.123 kube.cache] pods are watched again`"""

    def __init__(self, skip_headers: bool = False) -> None:
        super().__init__()
        self._skip = skip_headers

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        if self._skip:
            return text
        letter = next(letter for level, letter in LETTERS if record.levelno >= level)
        clock = time.strftime("%m%d %H:%M:%S", time.localtime(record.created))
        return (
            f"{letter}{clock}.{int(record.msecs):03d} {record.name.removeprefix('hekla.')}] {text}"
        )


def level_of(verbosity: int) -> int:
    """The lowest log level that `-v verbosity` shows."""
    if verbosity >= 6:
        return TRACE
    if verbosity >= 4:
        return logging.DEBUG
    return VERBOSE if verbosity >= 2 else logging.INFO


def set_up(options: Options, program: str) -> None:
    """Configure logging by the flags.  Raises FlagError."""
    logging.addLevelName(VERBOSE, "VERBOSE")
    logging.addLevelName(TRACE, "TRACE")
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    to_stderr = options.logtostderr or options.alsologtostderr
    if to_stderr or not (options.log_file or options.log_dir):
        stderr = logging.StreamHandler(sys.stderr)
        threshold = SEVERITIES[options.stderrthreshold.upper()]
        stderr.setLevel(threshold if threshold > logging.INFO else logging.NOTSET)
        root.addHandler(stderr)
    if not options.logtostderr and (options.log_file or options.log_dir):
        root.addHandler(_file_handler(options, program))
    for handler in root.handlers:
        handler.setFormatter(Formatter(options.skip_headers))
    set_verbosity(options.v)
    _set_modules(options.vmodule)


def set_verbosity(verbosity: int) -> None:
    logging.getLogger().setLevel(level_of(verbosity))
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def _file_handler(options: Options, program: str) -> logging.Handler:
    from logging.handlers import RotatingFileHandler

    path = Path(options.log_file) if options.log_file else Path(options.log_dir) / f"{program}.log"
    try:
        return RotatingFileHandler(
            path, maxBytes=int(options.log_file_max_size * MEGABYTE), backupCount=1
        )
    except OSError as error:
        raise FlagError(f"--log_file: {path}: {error.strerror}") from None


def _set_modules(settings: str) -> None:
    """Apply `pattern=N,...`.  A pattern is compared with the last part of a module's name and with
    the whole name."""
    rules: list[tuple[str, int]] = []
    for part in filter(None, settings.split(",")):
        pattern, equals, number = part.partition("=")
        if not equals or not number.isdigit():
            raise FlagError(
                f'invalid argument "{settings}" for "--vmodule" flag: {part!r}: expected pattern=N'
            )
        rules.append((pattern, int(number)))
    if not rules:
        return

    def matching(name: str) -> int | None:
        whole = name.removeprefix("hekla.")
        names = (whole, whole.rpartition(".")[2])
        return next(
            (n for pattern, n in rules if any(fnmatch.fnmatch(part, pattern) for part in names)),
            None,
        )

    class Module(logging.Logger):
        """A logger whose level the rules decide when it is made: modules are imported lazily."""

        def __init__(self, name: str, level: int = logging.NOTSET) -> None:
            verbosity = matching(name)
            super().__init__(name, level if verbosity is None else level_of(verbosity))

    logging.setLoggerClass(Module)
    for name, logger in list(logging.Logger.manager.loggerDict.items()):
        verbosity = matching(name)
        if verbosity is not None and isinstance(logger, logging.Logger):
            logger.setLevel(level_of(verbosity))
