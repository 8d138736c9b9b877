"""The HTTP side: from a client's connection to its upstream, and what people decide in between."""
