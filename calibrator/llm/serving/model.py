"""Compute the forward pass: from token ids and images to the two labels' logits.

The released code takes one row at a time, unmerged, over the whole vocabulary, and reads the
placeholder each time (W07). Here nothing unnecessary is computed: no logits of other positions, no
other row of the head, no image twice, no common beginning twice. The two rows of the head are
multiplied in fp32, whatever dtype the rest has (B09), and layers add in fp32 too: in bf16 the other
rows of a batch would change a score.

Rows are padded on the right and read at their own last token. A causal model never sees later
tokens, so no mask is needed, attention has its fast path, and states that continue from a common
beginning meet no padding. Positions are always passed, because the models would otherwise count
on from those of an earlier batch.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import DynamicCache

from calibrator.llm.layers.graphs import Graphs, Pass
from calibrator.llm.layers.last_layer import LastLayer, read_at
from calibrator.llm.layers.replace import text_model_of
from calibrator.llm.serving.batches import Batch, Budget, ModelRow, plan
from calibrator.llm.serving.pixels import Pixels
from calibrator.llm.serving.probe import Probe, features_of

__all__ = ["LabelModel", "ModelRow"]
CPU_BUDGET: Final = Budget(tokens=1_024, pass_tokens=64)
GPU_TOKENS: Final = 16_384
GPU_PASS: Final = 3e13  # operations that take as long as launching a pass
NEVER: Final = 2**62  # tokens; an extra pass never pays
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prefix:
    """A beginning that was read: `row`, and its keys, values and recurrent states."""

    row: ModelRow
    cache: DynamicCache
    device: torch.device

    def copies(self, count: int) -> DynamicCache:
        """Return a cache of this beginning for `count` rows.

        What they add does not change the original.
        """
        cache = deepcopy(self.cache)
        if count > 1:
            # the only way to repeat a cache that layers of linear attention support too
            cache.reorder_cache(torch.zeros(count, dtype=torch.long, device=self.device))  # type: ignore[arg-type]  # no LongTensor to torch
        return cache


def positions_of(row: ModelRow, image_id: int, merge: int) -> NDArray[np.int64]:
    """Return a row's positions (3, L) in time, height and width.

    `image_id` is the token of images; one token covers `merge` by `merge` patches. Text counts on
    in all three. An image's tokens have one time, and lie as its patches do. The text after an
    image continues after its longer side.
    """
    found = np.empty((3, len(row.ids)), np.int64)
    at = position = 0
    for (start, end), image in zip(row.spans(image_id), row.images, strict=True):
        found[:, at:start] = np.arange(position, position + start - at)
        position += start - at
        frames, height, width = image.grid[0], image.grid[1] // merge, image.grid[2] // merge
        places = np.indices((frames, height, width)).reshape(3, -1)
        found[:, start:end] = places + position
        position += max(height, width)
        at = end
    found[:, at:] = np.arange(position, position + len(row.ids) - at)
    return found


class LabelModel:
    """A language model that is read at its two labels alone.

    `model` is a causal or an image-text-to-text model; `label_ids` are its tokens for incorrect and
    correct. Padding on the left is for comparisons; it cannot continue from a common beginning. If
    `budget` is None, the device's is used.
    """

    def __init__(
        self,
        model: Any,
        label_ids: tuple[int, int],
        *,
        padding: Literal["left", "right"] = "right",
        budget: Budget | None = None,
    ) -> None:
        """Wrap a model; on a GPU, cuDNN's attention is turned off in the whole process."""
        self.model = model
        self.body: nn.Module = model.model  # returns hidden states, without the head
        self.label_ids = label_ids
        self.padding = padding
        self.pad_id = 0  # never read, so any id of the vocabulary serves
        self.probe: Probe | None = None  # reads the state instead of the labels (K14)
        self.has_odds = False  # whether the probe reads the labels' log-odds too
        self.image_id: int | None = getattr(model.config, "image_token_id", None)
        self.budget = budget or (CPU_BUDGET if self.is_on_cpu else gpu_budget(model))
        self._kept: Prefix | None = None
        self._graphs: Graphs | None = None  # for single rows that continue from `_kept`
        if not self.is_on_cpu:
            # cuDNN plans for each new shape, for about half a second (pytorch/pytorch#155958)
            torch.backends.cuda.enable_cudnn_sdp(False)
        is_replaced = isinstance(text_model_of(model).layers[-1], LastLayer)
        self._reads_last = is_replaced and padding == "right"  # computes no other position

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        device: torch.device = self.model.device
        return device

    @property
    def is_on_cpu(self) -> bool:
        return self.device.type == "cpu"

    @property
    def _records(self) -> bool:
        """Whether passes of single rows are recorded and replayed: on an NVIDIA or AMD GPU only."""
        return self.device.type == "cuda"

    def label_rows(self) -> Tensor:
        """Return the head's rows (2, hidden) for the labels incorrect and correct, in fp32.

        The head may be tied to the embeddings.
        """
        head: Tensor = self.model.get_output_embeddings().weight
        return head[list(self.label_ids)].float()

    def logits(self, rows: Sequence[ModelRow]) -> Tensor:
        """Return logits (B, 2) of incorrect and correct, fp32 on the CPU, in the order of `rows`.

        B may be any number. If a GPU's memory is too small for a batch, batches become smaller. If
        it is too small for one row, the model moves to the CPU, in fp32. Both changes stay. Raises
        torch.OutOfMemoryError if that does not help either.
        """
        found = torch.empty((len(rows), 2))
        batches = deque(self.batches(rows, range(len(rows))))
        start: Prefix | None = None
        while batches:
            batch = batches[0]
            try:
                start = self._start(rows, batch, start)
                found[batch.places] = self._batch_logits([rows[at] for at in batch.places], start)
                batches.popleft()
                continue
            except torch.OutOfMemoryError:
                if len(batch.places) == 1 and self.is_on_cpu:
                    raise
            # after the handler, because the exception holds the tensors of the failed pass
            start = None
            self._make_room([len(rows[at].ids) - batch.start for at in batch.places])
            left = [place for each in batches for place in each.places]
            batches = deque(self.batches(rows, left))
        return found

    def read_out(self, states: Tensor) -> Tensor:
        """Return logits (B, 2) of last states (B, hidden), fp32 on the CPU.

        They are the labels' own, or zero and the log-odds of the probe.
        """
        logits = (states @ self.label_rows().T).cpu()
        if self.probe is None:
            return logits
        features = features_of(states.cpu(), logits[:, 1] - logits[:, 0], has_odds=self.has_odds)
        odds = self.probe.odds(features)
        return torch.stack([torch.zeros_like(odds), odds], dim=1)

    def hidden_states(self, rows: Sequence[ModelRow]) -> Tensor:
        """Return the last position's states (B, hidden) after the final norm, fp32 on the device.

        The rows are one batch; gradients are computed if they are on.
        """
        return self._hidden_states(rows)

    @torch.inference_mode()
    def keep(self, prefix: ModelRow) -> None:
        """Read the beginning of most rows once and keep its cache, which replaces an earlier one.

        The weights may not change afterwards. On a GPU passes of single rows behind it are
        recorded.
        """
        self._kept = self._read(prefix)
        if self._records and self._reads_last:
            self._graphs = Graphs(self._pass_after(self._kept), self.device)

    def batches(self, rows: Sequence[ModelRow], places: Sequence[int]) -> list[Batch]:
        """Return the batches in which `logits` computes the rows at these places."""
        if self.padding == "left":
            return plan(rows, places, Budget(self.budget.tokens, NEVER), None, self.image_id)
        kept = None if self._kept is None else self._kept.row
        return plan(rows, places, self.budget, kept, self.image_id)

    @torch.inference_mode()
    def _start(self, rows: Sequence[ModelRow], batch: Batch, last: Prefix | None) -> Prefix | None:
        """Return the common beginning of a batch's rows, reading it unless `last` is the same.

        `last` is the beginning of the previous batch. Return None if the rows share nothing.
        """
        kept = self._kept if batch.start else None
        if batch.shared == batch.start:
            return kept
        first = rows[batch.places[0]].cut(batch.shared, self.image_id)
        return last if last is not None and last.row == first else self._read(first, kept)

    @torch.inference_mode()
    def _batch_logits(self, rows: Sequence[ModelRow], start: Prefix | None) -> Tensor:
        """Return the logits (B, 2) of one batch, whose rows all begin with `start`."""
        if len(rows) == 1 and start is not None and start is self._kept:
            states = self._replay(rows[0], start)
            if states is not None:
                return self.read_out(states)
        return self.read_out(self._hidden_states(rows, start))

    def _replay(self, row: ModelRow, start: Prefix) -> Tensor | None:
        """Return the last state (1, hidden) of a row behind `start` by a recorded pass, or None.

        None if nothing is recorded, or the row is too long or has images of its own.
        """
        if self._graphs is None or len(row.images) > len(start.row.images):
            return None
        inputs = self.inputs([row], len(start.row.ids))
        return self._graphs.state(inputs["input_ids"], inputs.get("position_ids"))

    def _pass_after(self, start: Prefix) -> Pass:
        """Return a function that computes one row's last state, continuing from `start`.

        The row has no images of its own.
        """

        def act(ids: Tensor, positions: Tensor, last: Tensor) -> Tensor:
            """Return the last state (1, hidden) of a row of these ids and positions."""
            inputs = {"input_ids": ids}
            if self.image_id is not None:
                inputs["position_ids"] = positions
            return self._states_at(last, inputs, start.copies(1))

        return act

    def _hidden_states(self, rows: Sequence[ModelRow], start: Prefix | None = None) -> Tensor:
        """Return the last states (B, hidden), fp32, of rows that all begin with `start`."""
        read = 0 if start is None else len(start.row.ids)
        return self._last_states(rows, read, None if start is None else start.copies(len(rows)))

    def _read(self, row: ModelRow, start: Prefix | None = None) -> Prefix:
        """Compute a row, continuing from `start`, and return it with its cache."""
        if start is None:
            read, cache = 0, DynamicCache(config=self.model.config.get_text_config())
        else:
            read, cache = len(start.row.ids), start.copies(1)
        self._last_states([row], read, cache)
        return Prefix(row, cache, self.device)

    def _last_states(
        self, rows: Sequence[ModelRow], read: int, cache: DynamicCache | None
    ) -> Tensor:
        """Return states (B, hidden), fp32, at each row's last token.

        The rows' first `read` tokens are in the cache, if any; the others are added to it.
        """
        inputs = self.inputs(rows, read)
        lengths = [len(row.ids) - read for row in rows]
        ends = lengths if self.padding == "right" else [max(lengths)] * len(rows)
        return self._states_at(torch.tensor(ends, device=self.device) - 1, inputs, cache)

    def _states_at(
        self, last: Tensor, inputs: dict[str, Any], cache: DynamicCache | None
    ) -> Tensor:
        """Return states (B, hidden), fp32, at the places `last` (B,) of the model's inputs.

        The cache, if any, is extended by the inputs.
        """
        read_last = read_at(last) if self._reads_last else nullcontext()
        with _summed_in_fp32(self.model), read_last:
            output = self.body(**inputs, past_key_values=cache, use_cache=cache is not None)
        states: Tensor = output.last_hidden_state
        if states.shape[1] > 1:
            states = states[torch.arange(len(last), device=states.device), last]
        return states.flatten(1).float()

    def inputs(self, rows: Sequence[ModelRow], read: int = 0) -> dict[str, Any]:
        """Return the model's arguments for a padded batch, without the first `read` tokens.

        They are `input_ids`, and where needed `attention_mask`, `position_ids` and the computed
        images.
        """
        longest = max(len(row.ids) for row in rows) - read
        ids = np.full((len(rows), longest), self.pad_id)
        mask = np.zeros((len(rows), longest), np.int64)
        positions = np.zeros((3, len(rows), longest), np.int64)
        for at, row in enumerate(rows):
            length = len(row.ids) - read
            here = slice(length) if self.padding == "right" else slice(longest - length, None)
            ids[at, here] = row.ids[read:]
            mask[at, here] = 1
            if self.image_id is not None:
                positions[:, at, here] = positions_of(row, self.image_id, self._merge)[:, read:]
        inputs: dict[str, Any] = {"input_ids": self._on_device(ids)}
        if self.padding == "left":
            inputs["attention_mask"] = self._on_device(mask)
        if self.image_id is not None:
            inputs["position_ids"] = self._on_device(positions)
            if images := [image for row in rows for image in self._images(row, read)]:
                inputs["mm_encoder_outputs"] = {"image": self._image_features(images)}
        return inputs

    @property
    def _merge(self) -> int:
        """The number of patches by side that one token of an image covers."""
        merge: int = self.model.config.vision_config.spatial_merge_size
        return merge

    def _images(self, row: ModelRow, read: int) -> list[Pixels]:
        """Return the images of a row whose tokens begin at `read` or later."""
        spans = row.spans(self.image_id)
        return [image for image, (at, _) in zip(row.images, spans, strict=True) if at >= read]

    def _image_features(self, images: Sequence[Pixels]) -> Any:
        """Return the vision tower's output for images, in order, as transformers' object.

        A repeated image is computed once.
        """
        places = {image: at for at, image in enumerate(dict.fromkeys(images))}
        output = self.model.model.get_image_features(
            torch.cat([self._on_device(each.patches) for each in places]),
            self._on_device(np.array([each.grid for each in places])),
            return_dict=True,
        )
        order = [places[image] for image in images]
        output.pooler_output = [output.pooler_output[at] for at in order]
        if hasattr(output, "deepstack_features"):
            output.deepstack_features = [
                [layer[at] for at in order] for layer in output.deepstack_features
            ]
        return output

    def _on_device(self, values: np.ndarray[Any, Any]) -> Tensor:
        """Return an array as a tensor on the model's device."""
        return torch.from_numpy(values).to(self.device, non_blocking=True)

    def _make_room(self, lengths: Sequence[int]) -> None:
        """Reduce memory use, for good, after a batch of rows of these lengths did not fit.

        Batches become smaller; a single row stops recording, and then moves the model to the CPU.
        """
        if len(lengths) > 1:
            tokens = max(lengths) * len(lengths) // 2
            self.budget = Budget(tokens, self.budget.pass_tokens)
            log.warning("out of memory: batches hold %d tokens from now on", tokens)
        elif self._graphs is not None:
            self._graphs = None
            log.warning("out of memory: single rows are not recorded any more")
        else:
            kept, self._kept = self._kept, None
            self.model.to("cpu", torch.float32)
            self.budget = CPU_BUDGET
            log.warning("out of memory: scores are computed on the CPU from now on, in fp32")
            if kept is not None:
                self.keep(kept.row)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


@contextmanager
def _summed_in_fp32(model: Any) -> Iterator[None]:
    """Make layers add states in fp32 within the context; matrices keep their own dtype."""
    if model.dtype == torch.float32:
        yield
        return
    embeddings: nn.Module = model.get_input_embeddings()
    hook = embeddings.register_forward_hook(lambda _module, _inputs, states: states.float())
    try:
        with torch.autocast(model.device.type, model.dtype):
            yield
    finally:
        hook.remove()


def gpu_budget(model: Any) -> Budget:
    """Return the size of batches of a model on a GPU, and what an extra pass has to save.

    Launching a pass takes as long for a small model as for a large one, but a token does not. So
    the smaller the model, the more tokens an extra pass has to save.
    """
    layers: nn.ModuleList = text_model_of(model).layers
    weights = sum(each.numel() for each in (*layers.parameters(), *layers.buffers()))
    return Budget(GPU_TOKENS, int(GPU_PASS / (2 * weights)))
