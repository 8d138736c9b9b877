"""The client's end of a connection; the only room that knows uvicorn."""

__all__ = [
    "endpoint",
    "fastapi_errors",
    "http_protocol",
    "logs",
    "open_files",
    "request_heads",
    "server",
    "sockets",
    "websocket_settings",
]
