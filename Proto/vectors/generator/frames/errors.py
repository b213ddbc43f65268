"""An error frame of each code that no other vector has."""

from ..fields.notation import number, string
from ..framing import frame

ERROR_FRAMES = [
    # Every other error.
    frame("error", [number("code", code), number("retry_after", 0), string("detail", "")], correlation=26,
          name=f"error: {name}")
    for code, name in [
        (1, "malformed_frame"), (2, "frame_too_large"), (3, "unsupported_version"), (5, "unknown_kind"),
        (6, "session_expired"), (7, "handshake_required"), (8, "handshake_timeout"), (9, "superseded"),
        (20, "wrong_shard"), (22, "unavailable"), (23, "outcome_unknown"), (24, "not_implemented"), (25, "clock_jump"),
        (26, "data_directory_lost"), (27, "not_owner"), (31, "channel_not_found"), (32, "not_a_member"),
        (33, "message_not_found"), (34, "message_deleted"), (35, "mark_unread_off"), (36, "limit_reached"),
        (37, "token_revoked"), (38, "order_not_available"), (39, "counts_not_visible"), (40, "receipt_not_requested"),
        (41, "own_message"), (42, "receipt_expired"), (43, "not_expected"), (44, "invalid_cursor"),
        (45, "user_erased"), (46, "ticket_invalid"), (47, "ticket_expired"), (48, "message_conflict"),
        (49, "not_in_thread"), (50, "feed_off"), (51, "consumer_not_found"), (52, "consumer_conflict"),
        (53, "lease_lost"), (61, "backup_under_way"), (62, "backup_not_found"), (63, "backup_failed"),
        (70, "import_conflict"), (71, "import_gap"), (72, "import_order"), (73, "time_in_future")]
]
