"""Pairs of a context and a reply, made by rule, that teach whether the context supports the reply."""
