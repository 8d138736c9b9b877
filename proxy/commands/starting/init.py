"""`pinocchio init`: writes a first configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proxy.commands.opening.exits import stop
from proxy.errors import ExitStatus

IN_WHEEL, IN_CLONE = (
    Path(__file__).with_name("proxy.yaml"),
    Path(__file__).parents[3] / "proxy.yaml",
)


def init(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path(
        "proxy.yaml"
    ),
    policy: Annotated[
        str, typer.Option(help="Write this pack as a policy to change instead; FILE - prints it.")
    ] = "",
) -> None:
    """Write a configuration with every setting, its default and what it does, to be changed."""
    if policy:
        _write_pack(policy, path)
        return
    text = (IN_WHEEL if IN_WHEEL.is_file() else IN_CLONE).read_text(encoding="utf-8")
    _write(path, text)
    is_default = path == Path("proxy.yaml")
    option = "" if is_default else f" --config {path}"
    typer.echo(f"{path} has every setting with its default. Next, here:")
    typer.echo(
        f"  pinocchio check{option}    # after each change: says with file and line what is wrong"
    )
    typer.echo(f"  pinocchio serve{option}    # on 127.0.0.1:8000; OPENAI_API_KEY as in that file")


def _write_pack(name: str, path: Path) -> None:
    """Write a pack into a new file and say how to use it, or print the pack if `path` is `-`.

    `proxy.yaml`, the command's default, stands for `NAME.yaml`. Ends the process if there is no
    such pack, or if the file exists or cannot be written.
    """
    from policies import InvalidDocumentError, pack_text

    try:
        text = pack_text(name)
    except InvalidDocumentError as error:
        raise stop(ExitStatus.UNUSABLE_INPUT, str(error)) from error
    if str(path) == "-":
        typer.echo(text, nl=False)
        return
    target = Path(f"{name}.yaml") if path == Path("proxy.yaml") else path
    _write(target, text)
    typer.echo(f"{target} is the pack {name}. In proxy.yaml: policies: {target}")


def _write(path: Path, text: str) -> None:
    """Write a new file; end the process where it exists already or cannot be written."""
    try:
        with path.open("x", encoding="utf-8") as file:  # never overwrites somebody's work
            file.write(text)
    except FileExistsError as error:
        message = f"{path} is there already; remove it first, or name another: pinocchio init FILE"
        raise stop(ExitStatus.UNUSABLE_INPUT, message) from error
    except OSError as error:
        message = f"cannot write {path}: {error.strerror or error}"
        raise stop(ExitStatus.UNUSABLE_INPUT, message) from error
