"""Checkpoints: folders whose `calibrator.json` records everything that determines their scores.

    calibrator.json    architecture, layout, labels, tags, training data, recalibration, quality
    model.safetensors  the weights
    evidence.safetensors  the check of a reply against its conversation; may be missing
    tokenizer.json     the tokenizer

Names resolve in this order: `embedded` (shipped with the package), a folder, a hub name. This
module describes the `embedded` architecture; `llm_config.py` describes language models.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from calibrator.checkpoints.hub import download, is_hub_name
from calibrator.checkpoints.llm_config import ARCHITECTURES as LANGUAGE_MODELS
from calibrator.checkpoints.llm_config import HERE, PRESET_OF, LlmConfig, parse_config
from calibrator.errors import CheckpointError
from calibrator.recalibration.curves import Platt
from calibrator.text.word_pieces import Layout

CHECKPOINTS = Path(__file__).parent
EMBEDDED = "embedded"
WEIGHTS = "model.safetensors"
EVIDENCE = "evidence.safetensors"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """A checked `calibrator.json` of the `embedded` architecture."""

    name: str
    weights_sha256: str
    architecture: str = "embedded"
    labels: tuple[str, str] = ("i", "ii")  # incorrect, correct (paper B08)
    base_rate: float = 0.5  # share of correct replies in the training data
    layout: Layout = field(default_factory=Layout)
    recalibration: Platt | None = None
    source_models: tuple[str, ...] = ()  # `Source model:` is filled for these only (paper B03)
    benchmarks: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()  # sets of traffic that training did not see, for evaluation
    training: dict[str, Any] = field(default_factory=dict)
    quality: dict[str, Any] = field(default_factory=dict)
    evidence_sha256: str = ""  # digest of `evidence.safetensors`; empty where there is none

    @property
    def version(self) -> str:
        """The checkpoint and its recalibration, e.g. `embedded@3f2a91c0+platt@9c1d02ab`.

        The digest is that of the weights, or of both files' digests where there is evidence.
        """
        recalibration = f"+{self.recalibration.name}" if self.recalibration else ""
        digest = self.weights_sha256
        if self.evidence_sha256:
            digest = hashlib.sha256(f"{digest}{self.evidence_sha256}".encode()).hexdigest()
        return f"{self.name}@{digest[:8]}{recalibration}"

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON object of `calibrator.json`, with its `format`."""
        values = asdict(self)
        values["recalibration"] = self.recalibration.as_dict() if self.recalibration else None
        return {"format": FORMAT, **values}


def resolve_checkpoint(name: str) -> Path:
    """Return the folder of a checkpoint named `embedded`, by a folder, or by a hub name.

    A hub name is downloaded once and works offline afterwards. Raises CheckpointError where there
    is no such checkpoint, HubError where the hub cannot be used.
    """
    folder = CHECKPOINTS / EMBEDDED if name == EMBEDDED else Path(name).expanduser()
    if folder.is_dir():
        return folder
    if name == EMBEDDED or not is_hub_name(name):
        raise CheckpointError(f"there is no checkpoint folder {str(folder)!r}")
    return download(name)


def read_config(folder: Path, name: str = "") -> CheckpointConfig | LlmConfig:
    """Read and check a folder's `calibrator.json`.

    `name` is the hub name it came from: that of a preset needs no such file. Raises CheckpointError
    that names the file and the fault.
    """
    path = folder / "calibrator.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        if (preset := PRESET_OF.get(name.partition("@")[0])) is None:
            raise CheckpointError(
                f"{folder} is no checkpoint: it has no calibrator.json"
            ) from error
        values = {"preset": preset}
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    try:
        return _parse_values(values, folder)
    except KeyError as error:
        raise CheckpointError(f"{path} lacks {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path} is not what this version writes: {error}") from error


def _parse_values(values: Any, folder: Path) -> CheckpointConfig | LlmConfig:
    """Parse a configuration of either kind; a missing digest of weights is computed.

    Raises KeyError, TypeError, ValueError or CheckpointError for wrong values.
    """
    if "preset" not in values and values["architecture"] not in LANGUAGE_MODELS:
        return _parse_config(values)
    config = parse_config(values)
    return config if config.weights_sha256 else replace(config, weights_sha256=digest_of(folder))


def _parse_config(values: dict[str, Any]) -> CheckpointConfig:
    """Parse the configuration of an embedded calibrator.

    Raises ValueError for another format or architecture, KeyError and TypeError for wrong values.
    """
    values = dict(values)
    if (found := values.pop("format")) != FORMAT:
        raise ValueError(f"format {found!r}, this version reads {FORMAT}")
    if values["architecture"] != EMBEDDED:
        known = ", ".join((EMBEDDED, *LANGUAGE_MODELS))
        raise ValueError(f"architecture {values['architecture']!r} is not one of {known}")
    recalibration = values.pop("recalibration")
    if values.pop("encoder", None) is not None:
        raise ValueError("a checkpoint with an encoder, which this version does not read")
    return CheckpointConfig(
        layout=Layout(values.pop("layout")["max_tokens"]),
        labels=_texts(values, "labels"),
        source_models=_texts(values, "source_models"),
        benchmarks=_texts(values, "benchmarks"),
        left_out=_texts(values, "left_out") if "left_out" in values else (),
        recalibration=Platt.from_dict(recalibration) if recalibration else None,
        **values,
    )


def _texts(values: dict[str, Any], name: str) -> tuple[Any, ...]:
    """Remove the list of texts under a name from `values` and return it as a tuple.

    Raises KeyError where it is missing, TypeError for other values.
    """
    texts = values.pop(name)
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise TypeError(f"{name} must be a list of texts")
    return tuple(texts)


def copy_evidence(start: Path, folder: Path) -> None:
    """Copy the evidence file of a checkpoint's folder to another folder, if there is one.

    Raises OSError.
    """
    if (start / EVIDENCE).is_file():
        shutil.copyfile(start / EVIDENCE, folder / EVIDENCE)


def write_config(folder: Path, config: CheckpointConfig | LlmConfig) -> None:
    """Write `calibrator.json` into a folder; an existing one is replaced. Raises OSError."""
    text = json.dumps(config.as_dict(), indent=1, ensure_ascii=False)
    (folder / "calibrator.json").write_text(text + "\n", encoding="utf-8")


def weight_files(folder: Path) -> list[Path]:
    """Return all safetensors files of a checkpoint, sorted by name.

    Raises CheckpointError where there are none. Pickled weights are never read.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        pickles = sorted([*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.pkl")])
        found = f" ({pickles[0].name} is a pickle, which could run code)" if pickles else ""
        raise CheckpointError(f"{folder} has no weights in safetensors files{found}")
    return files


def digest_of(folder: Path) -> str:
    """Return the sha256 of a folder's weights, as hexadecimal digits.

    It is that of its one safetensors file, or of the names and digests of all. Raises
    CheckpointError where there are none.
    """
    found = [(path.name, sha256_of(path)) for path in weight_files(folder)]
    if len(found) == 1:
        return found[0][1]
    lines = "".join(f"{digest}  {name}\n" for name, digest in found)
    return hashlib.sha256(lines.encode()).hexdigest()


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file as hexadecimal digits. Raises OSError."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def base_folder(config: LlmConfig, folder: Path) -> Path:
    """Return the folder of a language model's base, with its weights and tokenizer.

    `folder` is the checkpoint's, in which a relative base is searched for; a hub name is downloaded
    once. Raises CheckpointError or HubError.
    """
    if config.base == HERE:
        return folder
    for candidate in (Path(config.base).expanduser(), folder / config.base):
        if candidate.is_dir():
            return candidate
    return download(config.base, config.base_revision)
