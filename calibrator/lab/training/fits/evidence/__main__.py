"""Train what checks a reply against its context, and write `evidence.safetensors`.

python -m calibrator.lab.training.fits.evidence --data $DATA/grounding --base MINILM -o FOLDER
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from safetensors.numpy import save_file

from calibrator.checkpoints.checkpoint import EVIDENCE, resolve_checkpoint
from calibrator.features.small_encoder import small_state
from calibrator.features.weights import Array
from calibrator.lab.training.fits.evidence.examples import examples
from calibrator.lab.training.fits.evidence.reader_fit import ReaderConfig, ReaderNet, fit_reader
from calibrator.lab.training.fits.evidence.support_fit import SupportConfig, columns_of, fit_support
from calibrator.readers.evidence.context.support import PREFIX, WORD_BITS, ContextReader
from calibrator.text.word_pieces import WordPieces, load_tokenizer

PLACES: Final = 208  # the longest row of the reader
# Files of the training half for the trees; the reader did not learn from them.
JUDGED: Final = ("begin", "wow_attribution", "summedits", "infotabs")


def reader_state(net: ReaderNet, pieces: dict[str, int]) -> dict[str, Array]:
    """Return the arrays of a fitted reader by name, packed into a few bits a number.

    `pieces` is the vocabulary, {piece: id}.
    """
    base = {name: each.detach().float().numpy() for name, each in net.bert.state_dict().items()}
    state = small_state(base, pieces, net.bert.config.num_hidden_layers, PLACES, WORD_BITS)
    state["head"] = net.head.weight.detach().numpy().astype(np.float16)
    state["head.bias"] = net.head.bias.detach().numpy().astype(np.float16)
    return state


def main() -> None:
    """Fit the reader, then the trees, and write both to `evidence.safetensors`.

    Options, such as the output folder, are read from the command line; progress is printed. An
    interrupted fit of the reader resumes.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with train/ and test/")
    parser.add_argument("--base", type=Path, required=True, help="folder of all-MiniLM-L6-v2")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    folder = resolve_checkpoint("embedded")
    tokenizer = load_tokenizer(folder)
    word_pieces = WordPieces(tokenizer)

    def cut(texts: Sequence[str]) -> list[Sequence[int]]:
        """Return the word pieces of each text, however long."""
        return [*word_pieces.encode_whole(texts)]

    learnt = list(examples(options.data, cut, options.seed))
    random.Random(options.seed).shuffle(learnt)
    print(f"{len(learnt)} examples", flush=True)
    config = ReaderConfig(seed=options.seed)
    net = fit_reader(
        learnt, options.base, options.output, config, lambda line: print(line, flush=True)
    )
    state = reader_state(net, tokenizer.get_vocab())
    reader = ContextReader(state, cut)
    judged = columns_of(options.data / "train", JUDGED, reader, SupportConfig(), print)
    arrays = {PREFIX + name: array for name, array in state.items()}
    arrays |= fit_support(judged, SupportConfig())
    save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, options.output / EVIDENCE)


if __name__ == "__main__":
    main()
