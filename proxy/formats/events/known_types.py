"""The kinds of all block, item and event types of the OpenAI and Anthropic APIs.

`text` is part of what the model says, `call` of a call of a tool, `result` of a tool's result, and
`other` is none of these. `tests/proxy/formats/test_known_types.py` compares the tables with the
types of the installed SDKs, so that their new types are classified here before customers use them.
The members of unknown types are examined: see `proxy.formats.events.called.may_hold_part`.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

KindOfType: TypeAlias = Literal["text", "call", "result", "other"]


def _table(**names: str) -> dict[str, KindOfType]:
    """Return the kind of each type by its name, from types given by kind.

    `_table(text="message reasoning")` is `{"message": "text", "reasoning": "text"}`.
    """
    kinds: dict[str, KindOfType] = {"text": "text", "call": "call"}
    kinds |= {"result": "result", "other": "other"}
    return {name: kinds[kind] for kind, types in names.items() for name in types.split()}


BLOCKS: Final = _table(  # of Anthropic's messages; thoughts count as text
    text="text thinking redacted_thinking image document search_result",
    call="tool_use server_tool_use mcp_tool_use",
    result="web_search_tool_result web_fetch_tool_result code_execution_tool_result"
    " bash_code_execution_tool_result text_editor_code_execution_tool_result"
    " tool_search_tool_result mcp_tool_result advisor_tool_result tool_result",
    other="container_upload compaction fallback mcp_tool_listing",
)
BLOCK_DELTAS: Final = _table(
    text="text_delta thinking_delta citations_delta compaction_delta",
    call="input_json_delta",
    other="signature_delta",
)
MESSAGE_EVENTS: Final = _table(
    text="content_block_start content_block_delta",  # or parts of a call, like their block
    other="message_start content_block_stop message_delta message_stop ping error",
)
ITEMS: Final = _table(  # of OpenAI's responses
    text="message reasoning",
    call="function_call custom_tool_call web_search_call file_search_call computer_call"
    " image_generation_call code_interpreter_call local_shell_call shell_call apply_patch_call"
    " mcp_call mcp_approval_request tool_search_call program",
    result="function_call_output custom_tool_call_output computer_call_output"
    " local_shell_call_output shell_call_output apply_patch_call_output tool_search_output"
    " program_output",
    other="compaction mcp_list_tools item_reference additional_tools mcp_approval_response"
    " configuration_update",
)


def _events(names: str) -> str:
    """Return full types, separated by blanks, for names such as `refusal.delta|done`.

    That is `response.refusal.delta response.refusal.done`.
    """
    parted = (each.partition(".") for each in names.split())
    return " ".join(
        f"response.{family}.{ending}"
        for family, _, endings in parted
        for ending in endings.split("|")
    )


RESPONSE_EVENTS: Final = _table(
    text=_events(
        "output_text.delta|done refusal.delta|done content_part.added|done"
        " reasoning_text.delta|done reasoning_summary_part.added|done"
        " reasoning_summary_text.delta|done audio.delta|done"
    )
    + " response.output_text.annotation.added response.audio.transcript.delta"
    " response.audio.transcript.done response.output_item.added response.output_item.done",
    call=_events(
        "function_call_arguments.delta|done mcp_call_arguments.delta|done"
        " custom_tool_call_input.delta|done code_interpreter_call_code.delta|done"
        " code_interpreter_call.in_progress|interpreting|completed"
        " file_search_call.in_progress|searching|completed"
        " web_search_call.in_progress|searching|completed"
        " image_generation_call.in_progress|generating|partial_image|completed"
        " mcp_call.in_progress|completed|failed shell_call_command.added|delta|done"
    ),
    result=_events("shell_call_output_content.delta|done"),
    other=_events("mcp_list_tools.in_progress|completed|failed compaction.compacting")
    + " response.created response.queued response.in_progress response.completed"
    " response.incomplete response.failed response.cancelled response.rate_limits.updated"
    " error ping keepalive",
)
