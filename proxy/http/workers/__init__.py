"""Several processes as one proxy: their supervisor, and the messages between them.

The supervisor forks the workers, which accept connections on one listening socket. It restarts a
worker that died, passes on questions between workers, and changes the configuration of all of them
or of none. Nothing here knows what the workers serve; `proxy/startup/multiprocess.py` does.
"""

__all__ = ["board", "channel", "peers", "supervisor"]
