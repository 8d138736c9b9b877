"""The client's end: HTTP/1.1 and its server. Only this package uses uvicorn."""

__all__ = [
    "endpoint",
    "fastapi_errors",
    "http_cycle",
    "http_protocol",
    "logs",
    "open_files",
    "request_heads",
    "server",
    "sockets",
    "websocket_settings",
]
