"""`calibrator.json` of a calibrator that is a language model, and the presets it starts from.

`paper` follows the paper (checklist B, E, F): the largest of Qwen3-VL's three sizes (B04).
`released-0.8b` follows the authors' released weights (2-W): Qwen3.5-0.8B as the class that sees
images (W01), with the quality that they state (W10). Where the paper contradicts itself, the
placeholder of 28 x 28 is enlarged to the least size that the vision tower takes, 448 x 448 (V16),
and an image of 200,704 to 401,408 pixels is 196 to 392 tokens of 32 x 32 (V15).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args

from calibrator.errors import CheckpointError
from calibrator.recalibration.curves import Platt

Architecture = Literal["image-text-to-text", "causal-lm"]
ARCHITECTURES: Final = get_args(Architecture)
Metadata = Literal["auto", "omit", "explicit"]
Missing = Literal["omit", "empty"]
Elicitation = Literal["logit", "probe", "both"]  # the labels' logits, a probe of the state, or both
PRESETS: Final = Path(__file__).parent / "presets"
PRESET_OF: Final = {"KevinDavidHayes/pinocchio-0.8b": "released-0.8b"}  # G04; no calibrator.json
FIELDS: Final = ("benchmark", "source_model", "question", "answer")
FORMAT: Final = 1
HERE: Final = "."  # the `base` of a folder with whole weights
FIELD: Final = re.compile(r"\{(\w+)\}")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """The size of a LoRA adapter (E01). An `alpha` of None is read from the adapter's own file."""

    rank: int = 32
    alpha: int | None = 64


@dataclass(frozen=True, slots=True)
class PromptConfig:
    """The prompt that the calibrator reads (B07, F01-F03, F07)."""

    template: str
    missing: Missing = "omit"  # for an unknown tag, omit the line or leave its value empty
    question_characters: int = 1_500
    answer_characters: int = 800

    def __post_init__(self) -> None:
        """Raise ValueError for a template without question and answer, or for no characters."""
        found = FIELD.findall(self.template)
        if sorted(set(found) & {"question", "answer"}) != ["answer", "question"]:
            raise ValueError("the prompt template needs {question} and {answer}")
        if strange := sorted(set(found) - set(FIELDS)):
            raise ValueError(f"the prompt template has an unknown field {{{strange[0]}}}")
        if min(self.question_characters, self.answer_characters) < 1:
            raise ValueError("a prompt keeps at least one character of question and answer")


@dataclass(frozen=True, slots=True)
class PlaceholderConfig:
    """The picture for text questions, so that both kinds have one format (B06, F05, W02)."""

    width: int = 28
    height: int = 28
    color: str = "gray"
    pixels: int = 200_704  # its size after resizing


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """The range of pixels into which images are resized for the vision tower (F04)."""

    min_pixels: int = 200_704
    max_pixels: int = 401_408
    placeholder: PlaceholderConfig | None = None

    def __post_init__(self) -> None:
        """Raise ValueError unless 0 < min_pixels <= max_pixels."""
        if not 0 < self.min_pixels <= self.max_pixels:
            raise ValueError("images: min_pixels must be above 0 and not above max_pixels")


@dataclass(frozen=True, slots=True)
class LlmConfig:
    """A checked `calibrator.json` of a language model.

    `base` is a hub name, a folder, or `.` where this folder holds whole weights (then `adapter` is
    None). `weights_sha256` is the folder's `checkpoint.digest_of`.
    """

    name: str
    base: str
    prompt: PromptConfig
    weights_sha256: str = ""
    architecture: Architecture = "image-text-to-text"
    base_revision: str | None = None
    adapter: AdapterConfig | None = None
    labels: tuple[str, str] = ("i", "ii")  # incorrect, correct (B08)
    images: ImageConfig | None = None
    metadata: Metadata = "auto"
    elicitation: Elicitation = "logit"  # K14
    variants: dict[str, PromptConfig] = field(default_factory=dict)  # other prompts, by name (G05)
    recalibration: Platt | None = None
    source_models: tuple[str, ...] = ()  # `Source model:` is filled for these only (B03)
    benchmarks: tuple[str, ...] = ()
    canary: tuple[float, ...] = ()  # scores of `CANARIES`, where they were recorded
    training: dict[str, Any] = field(default_factory=dict)
    quality: dict[str, Any] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """The checkpoint and its recalibration, e.g. `pinocchio-0.8b@3f2a91c0+platt@9c1d02ab`."""
        recalibration = f"+{self.recalibration.name}" if self.recalibration else ""
        return f"{self.name}@{self.weights_sha256[:8]}{recalibration}"

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON object of `calibrator.json`, with its `format`."""
        values = asdict(self)
        values["recalibration"] = self.recalibration.as_dict() if self.recalibration else None
        return {"format": FORMAT, **values}


def parse_config(values: Mapping[str, Any]) -> LlmConfig:
    """Return the configuration of a language model in `values`, perhaps based on a preset.

    Values beside `preset` replace the preset's. Raises CheckpointError for an unknown preset;
    KeyError, TypeError or ValueError for values that are no configuration of this kind.
    """
    values = dict(values)
    if (found := values.pop("format", FORMAT)) != FORMAT:
        raise ValueError(f"format {found!r}, this version reads {FORMAT}")
    if "preset" in values:
        values = {**_preset(values.pop("preset")), **values}
    for key, allowed in (
        ("architecture", ARCHITECTURES),
        ("metadata", get_args(Metadata)),
        ("elicitation", get_args(Elicitation)),
    ):
        if key in values and values[key] not in allowed:
            raise ValueError(f"{key} {values[key]!r} is not one of {', '.join(allowed)}")
    images, adapter, recalibration = (
        values.pop(key, None) for key in ("images", "adapter", "recalibration")
    )
    config = LlmConfig(
        prompt=_build_dataclass(PromptConfig, values.pop("prompt")),
        images=None if images is None else _images(images),
        adapter=None if adapter is None else _build_dataclass(AdapterConfig, adapter),
        recalibration=None if recalibration is None else Platt.from_dict(recalibration),
        labels=_labels(values.pop("labels", ("i", "ii"))),
        variants={
            name: _build_dataclass(PromptConfig, each)
            for name, each in values.pop("variants", {}).items()
        },
        source_models=tuple(map(str, values.pop("source_models", ()))),
        benchmarks=tuple(map(str, values.pop("benchmarks", ()))),
        canary=tuple(map(float, values.pop("canary", ()))),
        **values,
    )
    if config.images is not None and config.architecture == "causal-lm":
        raise ValueError("a causal-lm reads no images; leave 'images' out")
    if (config.adapter is None) != (config.base == HERE):
        raise ValueError(f"whole weights have base {HERE!r} and no adapter, an adapter has both")
    return config


def is_tag(names: Sequence[str]) -> bool:
    """Return whether a template's line, with these fields, is a tag that may be left out.

    That is so if it has fields, but neither question nor answer, as `Source model: {source_model}`.
    """
    return bool(names) and not {"question", "answer"} & set(names)


def _images(values: Mapping[str, Any]) -> ImageConfig:
    """Return the configuration of images; raises TypeError or ValueError for wrong values."""
    values = dict(values)
    placeholder = values.pop("placeholder", None)
    return ImageConfig(
        placeholder=None
        if placeholder is None
        else _build_dataclass(PlaceholderConfig, placeholder),
        **values,
    )


def _build_dataclass(kind: type[T], values: Any) -> T:
    """Return a dataclass of this kind made from the values of an object.

    Raises TypeError for no object, unknown or missing values, and a number that is not whole.
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"{kind.__name__} must be an object, not {type(values).__name__}")
    for each in fields(kind):  # type: ignore[arg-type]
        value = values.get(each.name)
        if "int" in str(each.type) and value is not None and type(value) is not int:
            raise TypeError(f"{each.name} must be a whole number, not {value!r}")
    return kind(**values)


def _labels(values: Any) -> tuple[str, str]:
    """Return the two labels as strings; raises ValueError unless they are two and differ."""
    if not isinstance(values, Sequence) or len(values) != 2 or values[0] == values[1]:
        raise ValueError(f"labels must be two different strings, not {values!r}")
    return str(values[0]), str(values[1])


def preset(name: str, **changes: Any) -> LlmConfig:
    """Return the preset `paper` or `released-0.8b` with `changes` to its values.

    Raises as `parse_config`.
    """
    return parse_config({"preset": name, **changes})


def _preset(name: Any) -> dict[str, Any]:
    """Return the values of a preset; raises CheckpointError for an unknown name."""
    known = {path.stem: path for path in PRESETS.glob("*.json")}
    if name not in known:
        raise CheckpointError(f"there is no preset {name!r}; there are: {', '.join(sorted(known))}")
    values: dict[str, Any] = json.loads(known[name].read_text(encoding="utf-8"))
    return values
