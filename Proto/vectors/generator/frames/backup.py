"""Frames of backups."""

import hashlib

from ..fields.notation import raw
from ..fields.sessions import backup_contents, backup_part
from ..framing import frame

BACKUP_FRAMES = [
    # Backup.
    frame("backup_begin", [], correlation=36),
    frame("backup_begin_reply", backup_contents([7, 0], [("CURRENT", 16), ("000012.sst", 2**40)]), correlation=36),
    frame("backup_begin_reply", backup_contents([2**64 - 1], [("n" * 64, 2**64 - 1)]), correlation=36,
          name="backup_begin_reply: the longest name, everything at its largest"),
    frame("backup_read", backup_part(1, 2**19, 2**19), correlation=37),
    frame("backup_read_reply",
          [raw("digest", hashlib.sha256(b"tidemark").hexdigest()), raw("bytes", b"tidemark".hex())],
          correlation=37),
    frame("backup_digest", backup_part(2**32 - 1, 2**64 - 1, 2**64 - 1), correlation=38,
          name="backup_digest: everything at its largest"),
    frame("backup_digest_reply", [raw("digest", "ab" * 32)], correlation=38),
    frame("backup_end", [], correlation=39),
    frame("backup_end_reply", [], correlation=39),
]
