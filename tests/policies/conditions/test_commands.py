"""The reader of shell commands, compared with bash itself, and the paths in them."""

from __future__ import annotations

import random
import re
import subprocess
import time
from pathlib import Path

import pytest

from policies.conditions.commands import MAX_COMMAND, simple_commands
from policies.conditions.paths import leaves, paths_in

# Texts in which a careless reader finds one harmless command, and bash runs `rm`.
HIDDEN = [
    "ls # note \\\nrm -rf y",
    "echo $'\\'' ; rm -rf y #'",
    "echo \"${x#'\"'}\" ; rm -rf y #'",
    'git commit -m "$(cat <<-\'EOF\'\na\n\tEOF\n)"; rm -rf y ; echo "x\nEOF\n)"',
    "echo '$(cat <<'EOF'\n'; rm -rf y; echo '\nEOF\n)'",
    "# $(cat <<'EOF'\nrm -rf y\nEOF\n)",
    "r\\\nm -rf y",
    '"r\\\nm" -rf y',
    "{rm,-rf,y}",
    "echo \\\\\nrm -rf y",
    "echo a\\\n;rm -rf y",
]
PIECES = [
    *("ls", "rm -rf y", "echo", "a", " ", " ", "\n", "\\\n", "'", '"', "#", " #", ";", "&&", "|"),
    *("$", "$'", "\\'", '\\"', "\\", "{", "}", "a,b", "${x}", "${x:-", "${x#", ")", "(", ">", ">&"),
    *("2>&1 ", "f", "`", "$(cat <<'EOF'\n", "$(cat <<-'EOF'\n", "\nEOF\n", "\n\tEOF\n", "\nEOF\n)"),
]
SHELL = """
exec 9>FILE; BASH_XTRACEFD=9; PATH=/none; command_not_found_handle() { return 0; }
set -x; eval "$1"
"""


def programs_of(text: str, folder: Path) -> set[str]:
    """Run a text in bash, which finds no programs, and return the names that it tried to run."""
    trace = folder / "trace"
    shell = SHELL.replace("FILE", str(trace))
    words = ["/bin/bash", "--noprofile", "--norc", "-c", shell, "_", text]
    subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
    lines = trace.read_text(errors="replace").splitlines()
    called = (re.match(r"\++ (\S+)", line) for line in lines)
    return {found[1] for found in called if found} - {"eval", "return"}


@pytest.mark.parametrize("text", HIDDEN)
def test_a_hidden_command_is_read_or_the_text_is_unreadable(text: str, tmp_path: Path) -> None:
    """Bash runs `rm`, so the reader finds `rm` or does not read the text."""
    assert "rm" in programs_of(text, tmp_path)
    commands = simple_commands(text)
    assert commands is None or "rm" in [each.words[0] for each in commands if each.words]


@pytest.mark.parametrize("seed", range(2))
def test_bash_runs_no_rm_that_was_not_read(seed: int, tmp_path: Path) -> None:
    """Of random texts that can be read, the reader finds `rm` where bash tries to run it."""
    rng = random.Random(seed)
    runs = 0
    while runs < 120:
        text = "".join(rng.choices(PIECES, k=rng.randrange(2, 12)))
        commands = simple_commands(text)
        if commands is None or "rm" not in text:
            continue
        read = {each.words[0] for each in commands if each.words}
        if any("$" in name for name in read):  # such a command is on no list
            continue
        runs += 1
        ran = programs_of(text, tmp_path)
        assert "rm" not in ran or "rm" in read, (text, ran, commands)


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("ls >&out", ["out"]),
        ("ls >& out", ["out"]),
        ("ls 2>&1 >out", ["out"]),
        ("ls 2>&-", []),
        ("ls &>out", ["out"]),
        ("ls 21>out", ["out"]),
    ],
)
def test_files_of_redirections_are_found(text: str, files: list[str]) -> None:
    """A file after any form of redirection is found; a descriptor is no file."""
    commands = simple_commands(text)
    assert commands is not None
    assert ([each.words for each in commands if each.words], commands[-1].files) == (
        [["ls"]],
        files,
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ls -la", [["ls", "-la"]]),
        ("a 'b c' \"d e\" f\\ g", [["a", "b c", "d e", "f g"]]),
        ("a&&b||c;d|e&f\ng", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"], ["g"]]),
        ("a 2>&1 >b <c # d", [["a"]]),
        ("(cd a; ls)", [["cd", "a"], ["ls"]]),
        ("a \\\n  b", [["a", "b"]]),
        ("echo ''", [["echo", ""]]),
        ("X=1 a Y=2", [["a", "Y=2"]]),
        ("a $(b)", None),
        ("a `b`", None),
        ("a <(b)", None),
        ("a <<E\nE", None),
        ("a 'b", None),
        ('a "b', None),
        ("a >", None),
        ("x" * 30_000, None),
        ("git show stash@{0} {}", [["git", "show", "stash@{0}", "{}"]]),
        ('echo "a\\nb\\$c"', [["echo", "a\\nb$c"]]),
        ("echo ${HOME}/a", [["echo", "${HOME}/a"]]),
        (
            "git commit -m \"$(cat <<'EOF'\na `b` $(c)\nEOF\n)\"",
            [["git", "commit", "-m", "a `b` $(c)"]],
        ),
        ("git commit -m \"$(cat <<-'EOF'\na\n\tEOF\n)\"", [["git", "commit", "-m", "a"]]),
        ("cat $(cat <<'EOF'\n/etc/passwd\nEOF\n)", None),
        ("$(cat <<'EOF'\nrm -rf y\nEOF\n)", None),
        ("echo \"$(cat <<'EOF'\na\nEOF b\nEOF\n)\"", None),
        ("cat {/etc/passwd,x}", None),
        ("cat {1..3}", None),
        ("echo ${x:-$(rm)}", None),
        ('echo "`rm`"', None),
        ("echo 'a", None),
    ],
)
def test_commands_are_read_as_a_shell_does(text: str, words: list[list[str]] | None) -> None:
    """Commands are split as a shell does; None if only running them would tell."""
    commands = simple_commands(text)
    assert words == (None if commands is None else [each.words for each in commands])


@pytest.mark.parametrize(
    "unit",
    ["$(cat <<'A'\n", "'", "a;", "\\", "{", "\"$(cat <<'A'\n", "\\\n", '"', "a>&1 ", "$x{", "$"],
)
def test_hostile_commands_take_linear_time(unit: str) -> None:
    """Hostile commands of the greatest length, and long paths, are read within half a second."""
    text = (unit * MAX_COMMAND)[: MAX_COMMAND - 1]
    begun = time.process_time()
    simple_commands(text)
    leaves(unit * 100_000, "/srv/app")
    paths_in(f"*** Begin Patch\n{unit * 10_000}")
    assert time.process_time() - begun < 0.5


def test_files_of_redirections_are_paths() -> None:
    """Files of redirections count as paths of a command."""
    assert paths_in("echo a >> /etc/x 2>/dev/null") == ["/etc/x", "/dev/null", "echo", "a"]


@pytest.mark.parametrize(
    ("path", "is_outside"),
    [
        ("src/a.py", False),
        ("src/../a.py", False),
        ("../a.py", True),
        ("src/../../a.py", True),
        ("/srv/app", False),
        ("/srv/app/a/../b", False),
        ("/srv/app/../b", True),
        ("/srv/application/a", True),
        ("~/a", True),
        ("$HOME", True),
        ("/dev/null", False),
        # A shell may split or expand these, or `..` matches them.
        ("x$IFS/etc/passwd", True),
        ("a/$x/../..", True),
        ("$x..", True),
        (".*/.*/b", True),
        (".?/.?/b", True),
        ("..*/..*/b", True),
        ("${HOME}", True),
        ("a/.git*", False),
        ("$x", False),
        ("a.*b/c", False),
        ("a/.*", False),
        ("src/$name.py", False),
    ],
)
def test_paths_that_leave_the_project(path: str, is_outside: bool) -> None:
    """A path is outside by its name alone, whatever is on the disk."""
    assert leaves(path, "/srv/app") is is_outside
