"""Whole frames, in the order of frames.json."""

from .backup import BACKUP_FRAMES
from .channels import CHANNEL_FRAMES
from .errors import ERROR_FRAMES
from .events import EVENT_FRAMES
from .feed import FEED_FRAMES
from .index import INDEX_FRAMES
from .jobs import JOB_FRAMES
from .push import PUSH_FRAMES
from .receipts import RECEIPT_FRAMES
from .removal import REMOVAL_FRAMES
from .sessions import SESSION_FRAMES
from .threads import THREAD_FRAMES
from .transfers import TRANSFER_FRAMES

FRAMES = (
    SESSION_FRAMES + CHANNEL_FRAMES + RECEIPT_FRAMES + PUSH_FRAMES + THREAD_FRAMES + REMOVAL_FRAMES + INDEX_FRAMES
    + BACKUP_FRAMES + EVENT_FRAMES + FEED_FRAMES + ERROR_FRAMES + TRANSFER_FRAMES + JOB_FRAMES)
