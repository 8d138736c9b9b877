"""Calibrators that are language models: one prompt, one forward pass, two label tokens.

This is the paper's own kind (sections B, E, F of its checklist): a Qwen model with a LoRA adapter
reads question and answer, and P(correct) is the softmax over the logits of its two labels.

    serving/      prompts, images and the forward pass, joined to a scorer
    layers/       layers that are replaced so that scoring costs less
    training/     adapter and probe, from rows to a checkpoint (`training.md`)
    exporting.py  a checkpoint in the forms that other engines load
"""

__all__ = ["exporting"]
