"""Several processes as one proxy: their supervisor, and how they speak with each other.

The supervisor forks the workers, which accept connections on one listening socket. It starts one
anew that died, passes on what they ask each other, and lets all of them change their configuration
or none. Nothing here knows what the workers serve; `proxy/multiprocess.py` does.
"""

__all__ = ["agreement", "board", "channel", "peers", "supervisor"]
