"""Questions that only knowledge of the world answers, and the few such facts that are tabled."""
