"""Waits of the clients: each has a bound and a name, like those of the Swift tests."""
import time

# The longest time that a client waits for a condition, in seconds. Only a failing test waits that long.
LIMIT = 120
_PAUSE = 0.05


class TimedOut(AssertionError):
    def __init__(self, condition, found):
        super().__init__(f"timed out after {LIMIT} s waiting for {condition}; at last: {found!r}")


def eventually(condition, holds):
    """Polls `holds` until it returns something true, and returns that."""
    deadline = time.monotonic() + LIMIT
    while not (found := holds()):
        if time.monotonic() > deadline:
            raise TimedOut(condition, found)
        time.sleep(_PAUSE)
    return found


def eventually_equal(condition, expected, value):
    """Polls `value` until it returns what is expected."""
    last = [None]

    def holds():
        last[0] = value()
        return last[0] == expected

    try:
        eventually(condition, holds)
    except TimedOut:
        raise TimedOut(condition, last[0]) from None
