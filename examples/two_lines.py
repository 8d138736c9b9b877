"""Two lines that score a reply: the calibrator runs in this process, without proxy or network."""

from openai.types.chat import ChatCompletion

from pinocchio import Pinocchio

messages = [{"role": "user", "content": "Is 91 a prime number?"}]
response = ChatCompletion.model_validate(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1767225600,
        "model": "gpt-5-mini",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "No. 91 = 7 * 13, so it is not prime."},
                "finish_reason": "stop",
            }
        ],
    }
)

judge = Pinocchio()
p_correct = judge.score(response, messages=messages)

print(f"P(correct) = {p_correct:.4f} by {judge.name}")
