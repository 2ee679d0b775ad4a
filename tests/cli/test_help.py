"""Help, flags and exit codes: what a command line says before it speaks to any server.  Reference:
cli 1, 8."""

from __future__ import annotations

import pytest

from hekla.cli.vcctl.help import help_text
from hekla.cli.vcctl.parsing import UsageError, near_names, parse
from hekla.cli.vcctl.tree import VCCTL, single
from tests.cli.answers import command

ROOT = """Usage:
  vcctl [command]

Available Commands:
  help        Help about any command
  job         vcctl command line operation job
  jobflow     vcctl command line operation jobflow
  jobtemplate vcctl command line operation jobtemplate
  pod         vcctl command line operation pod
  queue       Queue Operations
  version     Print the version information

Flags:
  -h, --help                           help for vcctl
      --log-flush-frequency duration   Maximum number of seconds between log flushes (default 5s)
  -v, --v Level                        number for the log level verbosity
      --vmodule moduleSpec             comma-separated list of pattern=N settings for file-filtered logging (only works for the default text log format)

Use "vcctl [command] --help" for more information about a command.
"""  # noqa: E501 (as it is printed)

GLOBAL = """Global Flags:
      --log-flush-frequency duration   Maximum number of seconds between log flushes (default 5s)
  -v, --v Level                        number for the log level verbosity
      --vmodule moduleSpec             comma-separated list of pattern=N settings for file-filtered logging (only works for the default text log format)
"""  # noqa: E501 (as it is printed)

JOB = f"""vcctl command line operation job

Usage:
  vcctl job [command]

Available Commands:
  delete      delete a job
  list        list job information
  resume      resume a job
  run         run job by parameters from the command line
  suspend     abort a job
  view        show job information

Flags:
  -h, --help   help for job

{GLOBAL}
Use "vcctl job [command] --help" for more information about a command.
"""

LIST = f"""list job information

Usage:
  vcctl job list [flags]

Flags:
      --all-namespaces      list jobs in all namespaces
  -h, --help                help for list
  -k, --kubeconfig string   (optional) absolute path to the kubeconfig file
  -s, --master string       the address of apiserver
  -n, --namespace string    the namespace of job (default "default")
  -q, --queue string        list job with specified queue name
  -S, --scheduler string    list job with specified scheduler name
      --selector string     fuzzy matching jobName

{GLOBAL}"""

SUSPEND = f"""abort a job

Usage:
  vcctl job suspend [flags]

Flags:
  -h, --help                help for suspend
  -k, --kubeconfig string   (optional) absolute path to the kubeconfig file
  -s, --master string       the address of apiserver
  -N, --name string         the name of job
  -n, --namespace string    the namespace of job (default "default")

{GLOBAL}"""

RUN = f"""run job by parameters from the command line

Usage:
  vcctl job run [flags]

Flags:
  -c, --command string      the command of job
  -f, --filename string     the yaml file of job
  -h, --help                help for run
  -i, --image string        the container image of job (default "busybox")
  -k, --kubeconfig string   (optional) absolute path to the kubeconfig file
  -L, --limits string       the resource limit of the task (default "cpu=1000m,memory=100Mi")
  -s, --master string       the address of apiserver
  -m, --min int             the minimal available tasks of job (default 1)
  -N, --name string         the name of job
  -n, --namespace string    the namespace of job (default "default")
  -r, --replicas int        the total tasks of job (default 1)
  -R, --requests string     the resource request of the task (default "cpu=1000m,memory=100Mi")
  -S, --scheduler string    the scheduler for this job (default "volcano")

{GLOBAL}"""


@pytest.mark.scenario("cli", 20)
@pytest.mark.scenario("controllers", 175)
@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("", ROOT),
        ("--help", ROOT),
        ("job", JOB),
        ("job --help", JOB),
        ("job bogus", JOB),
        ("help job", JOB),
        ("job list --help", LIST),
        ("job suspend -n job1 --help", SUSPEND),
        (
            "job resume -n job1 --help",
            SUSPEND.replace("suspend", "resume").replace("abort a job", "resume a job"),
        ),
        ("job run -h", RUN),
    ],
)
def test_the_help_is_exact(words: str, text: str):
    result = command("vcctl", *words.split())

    assert (result.stdout, result.returncode) == (text, 0)


def test_short_forms_put_all_flags_in_one_list():
    text = help_text((single("vcancel"),))

    assert text.startswith(
        "cancel a running, pending, or aborted job with specified name in default or specified namespace\n\nUsage:\n  vcancel [flags]\n"
    )
    assert "Global Flags:" not in text
    assert "  -N, --namespace string" in text and "  -n, --name string" in text


def test_vsub_tells_its_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("VOLCANO_DEFAULT_IMAGE", "alpine")

    line = next(line for line in help_text((single("vsub"),)).splitlines() if "--image" in line)

    assert line.endswith(
        'the container image of job, overwrite the value of \'VOLCANO_DEFAULT_IMAGE\' (default "busybox") (default "alpine")'
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("bogus", 'unknown command "bogus" for "vcctl"'),
        ("job list --foo", "unknown flag: --foo"),
        ("job list -x", "unknown shorthand flag: 'x' in -x"),
        ("job view --name", "flag needs an argument: --name"),
        ("job view -N", "flag needs an argument: 'N' in -N"),
        (
            "job run -m a",
            'invalid argument "a" for "-m, --min" flag: strconv.ParseInt: parsing "a": invalid syntax',
        ),
        (
            "queue create -w 4294967296",
            'invalid argument "4294967296" for "-w, --weight" flag: strconv.ParseInt: parsing "4294967296": value out of range',
        ),
    ],
)
def test_a_command_line_that_cannot_be_read(words: str, message: str):
    with pytest.raises(UsageError) as raised:
        parse(VCCTL, words.split())

    assert str(raised.value) == message


def test_a_number_without_end_is_out_of_range():
    """Python refuses to read more than 4,300 digits, which was a traceback."""
    with pytest.raises(UsageError, match="value out of range"):
        parse(VCCTL, ["job", "run", "-m", "9" * 5000])


def test_mistakes_go_to_stderr_and_end_with_1():
    wrong_flag, wrong_command = command("vcctl", "job", "list", "--foo"), command("vcctl", "jobb")

    assert (wrong_flag.stderr, wrong_flag.stdout, wrong_flag.returncode) == (
        "Error: unknown flag: --foo\n",
        "",
        1,
    )
    assert wrong_command.stderr.startswith(
        'Error: unknown command "jobb" for "vcctl"\n\nDid you mean this?\n\tjob\n'
    )


def test_a_flag_error_of_a_short_form_shows_the_usage_first():
    result = command("vcancel", "--foo")

    assert result.stderr.startswith("Usage:\n  vcancel [flags]\n")
    assert result.stderr.endswith("\nError: unknown flag: --foo\n")
    assert result.returncode == 1


@pytest.mark.parametrize(
    "words",
    ["job view --name x", "job view --name=x", "job view -N x", "job view -Nx", "job view -N=x", "job -v 3 view surplus -N x",
     "-v=1 job view --log_flush_frequency 1s --name x"],
)  # fmt: skip
def test_flags_are_taken_in_every_form(words: str):
    invocation = parse(VCCTL, words.split())

    assert [step.name for step in invocation.path] == ["vcctl", "job", "view"]
    assert invocation.values["name"] == "x"


def test_a_near_name_is_offered():
    assert near_names("sched", ["scheduler", "queue"]) == ["scheduler"]
    with pytest.raises(UsageError) as raised:
        parse(VCCTL, ["job", "list", "--scheduller=x"])
    assert raised.value.hint == "Did you mean --scheduler?"


def test_version_prints_six_lines():
    lines = command("vcctl", "version").stdout.splitlines()

    labels = ["API Version", "Version", "Git SHA", "Built At", "Go Version", "Go OS/Arch"]
    assert [line.split(": ")[0] for line in lines] == labels
    assert lines[0] == "API Version: v1alpha1"


@pytest.mark.scenario("cli", 8)
@pytest.mark.parametrize("name", ["run", "list", "view", "suspend", "resume", "delete"])
def test_job_commands_know_their_flags(name: str):
    group = VCCTL.child("job")
    assert group is not None
    leaf = group.child(name)
    assert leaf is not None

    flags = {flag.name for flag in leaf.flags}

    assert "namespace" in flags
    assert name == "list" or "name" in flags
    if name == "run":
        assert flags >= {"scheduler", "image", "replicas", "min", "requests", "limits"}


def test_help_imports_nothing_that_speaks_to_a_server():
    import subprocess
    import sys

    program = (
        "import sys; from hekla.cli.vcctl import main; main(['--help']);"
        "heavy = {'asyncio', 'msgspec', 'ssl', 'yaml', 'hekla.kube', 'hekla.api.kinds'} & set(sys.modules);"
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert (result.returncode, result.stderr) == (0, "")
