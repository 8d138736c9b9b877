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
    calibrator.py the scorer that joins them
"""
