"""The reader of shell commands, beside bash itself: no command that bash runs may stay unread."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest

from policies.conditions.commands import MAX_COMMAND, simple_commands
from policies.conditions.paths import leaves

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
def test_bash_runs_no_program_that_was_not_read(seed: int, tmp_path: Path) -> None:
    """Of random texts that can be read, the reader finds each program that bash tries to run."""
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
    "text",
    [
        "cat $(cat <<'EOF'\n/etc/passwd\nEOF\n)",
        "$(cat <<'EOF'\nrm -rf y\nEOF\n)",
        "echo \"$(cat <<'EOF'\na\nEOF b\nEOF\n)\"",
        "cat {/etc/passwd,x}",
        "cat {1..3}",
        "echo ${x:-$(rm)}",
        'echo "`rm`"',
        "echo 'a",
    ],
)
def test_what_depends_on_a_run_is_not_read(text: str) -> None:
    """Texts that become words only when a shell runs them, and open quotes, are not read."""
    assert simple_commands(text) is None


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
        ("git show stash@{0} {}", ["git", "show", "stash@{0}", "{}"]),
        ('echo "a\\nb\\$c"', ["echo", "a\\nb$c"]),
        ("echo ${HOME}/a", ["echo", "${HOME}/a"]),
        (
            "git commit -m \"$(cat <<'EOF'\na `b` $(c)\nEOF\n)\"",
            ["git", "commit", "-m", "a `b` $(c)"],
        ),
        ("git commit -m \"$(cat <<-'EOF'\na\n\tEOF\n)\"", ["git", "commit", "-m", "a"]),
    ],
)
def test_words_are_those_of_bash(text: str, words: list[str]) -> None:
    """Braces without alternatives, escapes in quotes, variables and messages are read."""
    commands = simple_commands(text)
    assert commands is not None
    assert [each.words for each in commands] == [words]


@pytest.mark.parametrize("unit", ["{", "$(cat <<'EOF'\n", "\\\n", '"', "a>&1 ", "$x{"])
def test_long_texts_take_linear_time(unit: str) -> None:
    """A text of the greatest length is read at once, whatever it repeats."""
    simple_commands((unit * MAX_COMMAND)[:MAX_COMMAND])


@pytest.mark.parametrize(
    "path", ["x$IFS/etc/passwd", "a/$x/../..", "$x..", ".*/.*/b", ".?/.?/b", "..*/..*/b", "${HOME}"]
)
def test_a_path_that_a_shell_may_take_elsewhere_leaves(path: str) -> None:
    """Variables that are split or lead up, and patterns that match `..`, leave the project."""
    assert leaves(path, "/srv/app")


@pytest.mark.parametrize("path", ["a/.git*", "$x", "a.*b/c", "a/.*", "src/$name.py"])
def test_a_path_that_stays_does_not_leave(path: str) -> None:
    """Patterns and variables below the project stay in it."""
    assert not leaves(path, "/srv/app")
