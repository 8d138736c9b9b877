"""Calibrators that are language models: one prompt, one forward pass, two label tokens.

The paper's own kind (sections B, E, F of its checklist): a Qwen model with a LoRA adapter reads
question and answer, and P(correct) is the softmax over the logits of its two labels.

    config.py     calibrator.json of this kind, and its presets
    prompts.py    items to token ids
    bases.py      where the base is
    elsewhere.py  prompts for a model that runs in an engine elsewhere
    images.py     image files to pictures, or the reason why there is none
    pixels.py     pictures to what the vision tower reads
    loading.py    base and adapter, checked, merged
    model.py      the forward pass
    canaries.py   scores that tell whose weights an engine has
    batches.py    which rows are computed together, and what of them once
    prefixes.py   what was read of a common beginning
    positions.py  where the tokens of text and images stand
    faster.py     layers that are replaced for scoring:
    patches.py    the vision tower's first
    linear_attention.py, delta_rule.py  those of linear attention, on a CPU
    last_layer.py the last, at one position
    float8.py     linear layers in float8
    kernels.py    which code computes linear attention
    calibrator.py the scorer that joins them

Training (`training.md`):

    train_config.py     what decides a run, and what it begins from
    samples.py          labelled rows, split by question
    adapters.py         LoRA adapters to be trained
    adapter_training.py the loop
    processes.py        one, or several that train together
    probe_training.py   a probe on the last states (`probe.py`)
    train.py            a run, from rows to a checkpoint
"""
