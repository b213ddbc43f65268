"""What a receiver refuses, in the order of bad-frames.json."""

from .events import BAD_EVENTS, CUT_EVENTS
from .feed import BAD_FEED
from .headers import BAD_KINDS_AND_FLAGS, BAD_LENGTHS_AND_KINDS
from .index import BAD_INDEX
from .options import BAD_OPTIONS, EMPTY_OPTIONS
from .push import BAD_PUSH
from .receipts import BAD_RECEIPTS
from .removal import BAD_THREADS_AND_REMOVALS
from .sessions import BAD_SESSIONS
from .transfers import BAD_JOBS, BAD_TRANSFERS

BAD_FRAMES = (
    BAD_LENGTHS_AND_KINDS + BAD_JOBS + BAD_TRANSFERS + BAD_KINDS_AND_FLAGS + BAD_SESSIONS + BAD_OPTIONS + EMPTY_OPTIONS
    + BAD_RECEIPTS + BAD_THREADS_AND_REMOVALS + BAD_INDEX + BAD_PUSH + BAD_EVENTS + CUT_EVENTS + BAD_FEED)
