"""The two ways in which the evaluation of a program ends without a value."""


class NotComputableError(Exception):
    """The program needs something that the evaluator does not offer, or too much of it."""


class RaisedError(Exception):
    """The program raises an error; its message is the name of the error's class."""
