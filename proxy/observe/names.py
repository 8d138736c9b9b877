"""Names of OpenTelemetry's conventions for generative AI, in one of their versions.

They are those of semantic-conventions-genai at its state of November 2026 (stability: development),
which has the same attributes as the Python package opentelemetry-semantic-conventions 0.66b2. A
test compares them. Changes of the conventions are made here alone. Our own names begin with
`pinocchio.`.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.66b2"

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
FIRST_CHUNK_S: Final = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"

EVALUATION_EVENT: Final = "gen_ai.evaluation.result"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_VALUE: Final = "gen_ai.evaluation.score.value"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
EVALUATION_EXPLANATION: Final = "gen_ai.evaluation.explanation"

ERROR_TYPE: Final = "error.type"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
HTTP_STATUS: Final = "http.response.status_code"

OPERATIONS: Final = {  # by path
    "/chat/completions": "chat",
    "/messages": "chat",
    "/responses": "chat",
    "/completions": "text_completion",
    "/embeddings": "embeddings",
}
PROVIDERS: Final = {  # by the end of the host's name
    "api.openai.com": "openai",
    "openai.azure.com": "azure.ai.openai",
    "api.anthropic.com": "anthropic",
    "api.groq.com": "groq",
    "api.deepseek.com": "deepseek",
    "api.mistral.ai": "mistral_ai",
    "api.x.ai": "x_ai",
    "api.cohere.com": "cohere",
    "api.perplexity.ai": "perplexity",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "amazonaws.com": "aws.bedrock",
}

REQUEST_ID: Final = "pinocchio.request_id"
UPSTREAM: Final = "pinocchio.upstream"
STATUS: Final = "pinocchio.confidence.status"
POLICY: Final = "pinocchio.policy"
MODE: Final = "pinocchio.mode"
CALIBRATOR: Final = "pinocchio.calibrator"
BASIS: Final = "pinocchio.basis"
SUPPORT: Final = "pinocchio.support"
REVIEW_ID: Final = "pinocchio.review_id"
EVALUATED: Final = "correctness"
"""The property whose probability a confidence is."""
