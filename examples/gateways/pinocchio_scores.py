"""The LiteLLM callback that `litellm_scores.yaml` names."""

import os

from pinocchio.litellm import scoring

URL = os.environ.get("PINOCCHIO_GUARDRAILS_URL", "http://127.0.0.1:8002")
scores = scoring(URL, os.environ.get("PINOCCHIO_GUARDRAILS_TOKEN", ""))
