"""A reader of shell commands: which programs they run, and with which words.

    simple_commands("cd app && pytest -q | tail -5")    # three commands, each a list of words
    simple_commands("echo $(rm -rf .)")                 # None: it depends on what runs first

A text that cannot be read without running it (substitutions, braces and variables that bash
expands in several ways, functions, here-documents) gives None, so that nothing unread is taken for
harmless. Quotes, escapes, redirections, comments and `$(cat <<'EOF' ..)`, in which agents write
commit messages, are read as bash reads them. The time is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from policies.conditions.globs import glob_test

MAX_COMMAND: Final = 20_000  # characters; a longer command is not read
_SPACE: Final = " \t"
_ENDS: Final = ";&|\n()"
_MESSAGE: Final = re.compile(r"\$\(cat <<(-?)[ \t]*(['\"])([A-Za-z_]\w{0,30})\2[ \t]*(?=\n)")
_CLOSED: Final = re.compile(r"\n[ \t\n]*\)")  # what follows the last line of a message
_VARIABLE: Final = re.compile(r"\{\w+\}")  # after a `$`
_IN_BRACES: Final = re.compile(r"[^\s;&|()<>]*")
_EXPANDED: Final = re.compile(r"[,'\"\\$`]|\.\.")  # in braces: these may become several words
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=")
_SHELLS: Final = frozenset({"sh", "bash", "zsh", "dash"})
_HARMLESS_VARIABLES: Final = frozenset(
    {
        *("CI", "COLUMNS", "DEBUG", "FORCE_COLOR", "LANG", "LC_ALL", "NODE_ENV", "NO_COLOR"),
        *("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONUNBUFFERED", "RUST_BACKTRACE", "TZ"),
    }
)
_SED_PRINTS: Final = frozenset("0123456789,;$!p \n")  # such a script can only print


@dataclass(slots=True)
class Command:
    """A simple command: its words, and the files that its redirections name."""

    words: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    variables: list[str] = field(default_factory=list)  # variables set for this command alone


def commands_in(value: Any) -> list[Command] | None:
    """Return the simple commands of a tool's argument, a text or a list of words.

    A list is one command that no shell reads, except `["bash", "-lc", TEXT]`, whose text is parsed.
    Return None for a text that cannot be read, an empty list and any other value.
    """
    if isinstance(value, str):
        return simple_commands(value)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        return None
    if len(value) == 3 and basename(value[0]) in _SHELLS and value[1] in ("-c", "-lc"):
        return simple_commands(value[2])
    return [Command(list(value))] if value else None


def simple_commands(text: str) -> list[Command] | None:
    """Return the simple commands of a shell's text, two for `cd app && ls`; [] for a blank text.

    Return None where the text cannot be read without running it, as with `$(..)`, backquotes,
    `$'..'`, `{a,b}`, a here-document or an open quote, or where it is longer than `MAX_COMMAND`. Of
    `"$(cat <<'EOF' ..)"` the document's text is read as the word.
    """
    return None if len(text) > MAX_COMMAND else _Reader(text).read()


class _Reader:
    """A parser that reads a text character by character; `read` returns its commands or None."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._commands: list[Command] = []
        self._command = Command()
        self._word: list[str] | None = None  # the pieces of the current word
        self._is_file = False  # whether the next word is the file of a redirection
        self._is_copy = False  # whether that word may be a descriptor, as in `2>&1`

    def read(self) -> list[Command] | None:
        """Return the commands of the whole text, or None where it cannot be read. Call it once."""
        while self._at < len(self._text):
            if not self._step(self._text[self._at]):
                return None
        self._end_command()
        return None if self._is_file else self._commands

    def _step(self, char: str) -> bool:
        """Read `char`, the character at `_at`, with what belongs to it, and move past them.

        That is the rest of a quote, a comment, an escape or a redirection's sign. A space ends
        the word, `;` and the like end the command. Return False where the text cannot be read.
        """
        self._at += 1
        if char in _SPACE:
            self._end_word()
        elif char == "&" and self._text[self._at : self._at + 1] == ">":
            self._end_word()  # `&>`: the next step reads the `>`
        elif char in _ENDS:
            self._end_command()
        elif char in "<>":
            return self._redirect(char)
        elif char == "#" and self._word is None:
            end = self._text.find("\n", self._at)
            self._at = len(self._text) if end < 0 else end
        elif char == "'":
            return self._read_single_quoted()
        elif char == '"':
            return self._read_quoted()
        elif char == "\\":
            self._escape()
        elif char in "`$":
            return self._expand(char)
        elif char == "{":
            return self._read_brace()
        else:
            self._add(char)
        return True

    def _add(self, text: str) -> None:
        """Append `text` to the current word, beginning a word if there is none (also with "")."""
        self._word = self._word or []
        self._word.append(text)

    def _escape(self, escaped: str = "") -> None:
        """Read the character after a backslash; a newline there continues the line.

        The backslash is removed before any character, or only before those of `escaped` if it is
        not empty, as in double quotes.
        """
        char = self._text[self._at : self._at + 1]
        self._at += 1
        if char != "\n":
            self._add(char if char and (not escaped or char in escaped) else f"\\{char}")

    def _end_word(self) -> None:
        """Add the current word, if any, to the files, variables or words of the current command.

        It is a file after a redirection, and a variable where it is `NAME=value` before the first
        word; of a variable only the name is kept.
        """
        if self._word is None:
            return
        word, self._word = "".join(self._word), None
        if self._is_file:
            if not (self._is_copy and (word == "-" or word.removesuffix("-").isdigit())):
                self._command.files.append(word)
            self._is_file = self._is_copy = False
        elif not self._command.words and (set_here := _ASSIGNMENT.match(word)):
            self._command.variables.append(set_here[1])
        else:
            self._command.words.append(word)

    def _end_command(self) -> None:
        """Add the current command to the commands found, unless it is empty, and begin a new."""
        self._end_word()
        command = self._command
        if command.words or command.files or command.variables:
            self._commands.append(command)
        self._command = Command()

    def _redirect(self, char: str) -> bool:
        """Read the rest of a redirection after its `char`, `<` or `>`; return whether it can be.

        The word before it ends; a descriptor (`2>`) is dropped. The file's name is not read: the
        next word is marked as one, and after `>&` as a file or a descriptor. False, with nothing
        read, for here-documents and substitutions.
        """
        rest = self._text[self._at : self._at + 1]
        if rest == "(" or (char == "<" and rest == "<"):
            return False
        if self._word is not None and "".join(self._word).isdigit():
            self._word = None  # a descriptor
        self._end_word()
        if rest and rest in ">|&":
            self._at += 1
        self._is_file, self._is_copy = True, rest == "&"
        return True

    def _read_single_quoted(self) -> bool:
        """Add the text up to the closing `'` to the current word; return False without one."""
        end = self._text.find("'", self._at)
        if end < 0:
            return False
        self._add(self._text[self._at : end])
        self._at = end + 1
        return True

    def _read_quoted(self) -> bool:
        """Add the text up to the closing `"` to the current word, with backslashes as escapes.

        Return False where there is no closing quote, or the text has a command substitution.
        """
        self._add("")
        while self._at < len(self._text):
            char = self._text[self._at]
            self._at += 1
            if char == '"':
                return True
            if char == "\\":
                self._escape('$`"\\')
            elif char in "`$":
                if not self._expand(char, is_quoted=True):
                    return False
            else:
                self._add(char)
        return False

    def _read_brace(self) -> bool:
        """Add `{` and the rest of its word, such as `stash@{0}` and `{}`.

        Return False where bash may make several words of it, as of `{a,b}` and `{1..3}`.
        """
        rest = _IN_BRACES.match(self._text, self._at)
        if rest is None or _EXPANDED.search(rest[0]):
            return False
        self._add("{" + rest[0])
        self._at = rest.end()
        return True

    def _expand(self, char: str, *, is_quoted: bool = False) -> bool:
        """Add `$NAME` or `${NAME}` as it is written, and in quotes the text of a here-document.

        Return False for whatever else a backquote or `$` begins: substitutions, `${NAME:-..}` and,
        outside double quotes, `$'..'`, whose escapes differ.
        """
        if char == "$" and is_quoted and (message := _MESSAGE.match(self._text, self._at - 1)):
            return self._read_message(message)
        after = self._text[self._at : self._at + 1]
        if char == "`" or (after and after in "([") or (not is_quoted and after and after in "'\""):
            return False
        name = ""
        if after == "{":
            if (variable := _VARIABLE.match(self._text, self._at)) is None:
                return False
            name, self._at = variable[0], variable.end()
        self._add(char + name)
        return True

    def _read_message(self, message: re.Match[str]) -> bool:
        """Read the rest of `$(cat <<'EOF' ..)` and add its text; `message` is its beginning.

        Return False unless the first line that begins with `EOF`, after tabs with `<<-`, has
        nothing else and is the last one.
        """
        tabs, _, word = message.groups()
        last = re.compile(rf"\n\t*{word}").search(self._text, message.end())
        if last is None or (last[0] != f"\n{word}" and not tabs):
            return False
        if (closed := _CLOSED.match(self._text, last.end())) is None:
            return False
        text = self._text[message.end() + 1 : last.start()]
        self._add(re.sub(r"(?m)^\t+", "", text) if tabs else text)
        self._at = closed.end()
        return True


# Commands listed by a rule


@dataclass(frozen=True, slots=True)
class CommandsTest:
    """A test that each simple command in a value begins with a phrase, such as `git status`.

    Each word of a phrase is a glob.
    """

    phrases: tuple[str, ...]

    def holds(self, value: Any) -> bool | None:
        """Return whether all commands in a text or a list of words begin with a phrase.

        Return False where there is no command, and None for a value that cannot be read
        (`commands_in`).
        """
        commands = commands_in(value)
        if commands is None:
            return None
        phrases = [phrase.split() for phrase in self.phrases]
        return bool(commands) and all(_is_listed(command, phrases) for command in commands)


def _is_listed(command: Command, phrases: Sequence[Sequence[str]]) -> bool:
    """Return whether a command begins with the words, or globs, of one of the `phrases`.

    `time` and `timeout 60` before it do not count. Return False for a command that sets a variable
    with a possible effect, whose program is a variable, or for a `sed` that may do more than print.
    """
    words = _without_wrapper(command.words)
    if not _HARMLESS_VARIABLES.issuperset(command.variables) or not words or "$" in words[0]:
        return False
    if words[0] == "sed" and not _sed_prints(words):
        return False
    return any(
        len(words) >= len(phrase)
        and all(
            one == word or glob_test(one)(word) for one, word in zip(phrase, words, strict=False)
        )
        for phrase in phrases
    )


def _without_wrapper(words: list[str]) -> list[str]:
    """Return a command's words without `time` or `timeout 60` in front; others unchanged."""
    if words[:1] == ["time"]:
        return words[1:]
    if words[:1] == ["timeout"] and len(words) > 2 and words[1].rstrip("smh").isdigit():
        return words[2:]
    return words


def _sed_prints(words: Sequence[str]) -> bool:
    """Return whether `sed -n SCRIPT FILE ..` only prints lines by their numbers, as `1,5p` does."""
    return len(words) > 2 and words[1] == "-n" and _SED_PRINTS.issuperset(words[2])


def basename(path: str) -> str:
    """Return the part of a path after its last `/`, or the whole path without one."""
    return path.rpartition("/")[2]
