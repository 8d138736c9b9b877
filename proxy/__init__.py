"""The HTTP side: from a client's connection to its upstream, and people's decisions in between."""
