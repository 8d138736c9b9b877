"""`pinocchio export-weights`: a language-model calibrator in the forms of other engines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from calibrator.commands.terminal import sentences


def export_weights(
    checkpoint: Annotated[
        str, typer.Argument(help="The calibrator: a folder or hub name of a language model.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Write into this new folder.")],
    form: Annotated[
        Literal["merged", "sequence-classification"],
        typer.Option(help="merged: for vLLM, SGLang and transformers; or with one output."),
    ] = "merged",
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"],
        typer.Option(help="Number format of the weights in the file."),
    ] = "float32",
) -> None:
    """Write a calibrator's weights for other engines; refused where these would score otherwise."""
    with sentences():
        from calibrator.llm.exporting import export_weights as export

        written = export(checkpoint, output, form, dtype)
    typer.echo(f"{written.version} is in {output}")
