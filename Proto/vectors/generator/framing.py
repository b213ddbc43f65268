"""Frames by their kinds, and frames that a receiver refuses."""

from .fields.notation import encode_all, raw, string

KINDS = {
    "hello": 0x01, "challenge": 0x02, "proof": 0x03, "ready": 0x04, "ping": 0x05, "pong": 0x06, "drain": 0x07,
    "events": 0x08, "shard_map": 0x09, "error": 0x0F,
    "put_channel": 0x10, "change_members": 0x11, "register_message": 0x12, "delete_message": 0x13, "mark_read": 0x14,
    "mark_unread": 0x15, "mark_delivered": 0x16, "patch_channel_type": 0x17, "assign_channel_type": 0x18,
    "acknowledge": 0x19, "patch_user": 0x1A, "assign_user": 0x1B, "settle": 0x1C, "delete_channel": 0x1D,
    "truncate_channel": 0x1E, "erase_member": 0x1F,
    "get_channel": 0x20, "read_state": 0x21, "statuses": 0x22, "get_channel_type": 0x23, "list_channel_types": 0x24,
    "get_user": 0x25, "list_unsettled": 0x26, "list_members": 0x27, "member_statuses": 0x28,
    "list_channels": 0x29, "unread_counts": 0x2A, "purge": 0x2B, "rebuild_index": 0x2C,
    "ticket_place": 0x2D, "webhook_known": 0x2E,
    "subscribe": 0x30, "unsubscribe": 0x31, "subscribe_user": 0x32, "announce_row": 0x33,
    "get_token": 0x34, "list_revoked_tokens": 0x35, "revoke_token": 0x46,
    "thread_read_state": 0x37, "user_receipts": 0x38, "user_threads": 0x39,
    "acknowledge_push": 0x40, "redeem_ticket": 0x41, "note_webhook": 0x42, "present_ticket": 0x43,
    "list_roster": 0x44, "list_messages": 0x45,
    "deliver_changes": 0x50, "confirm_changes": 0x51, "snapshot_begin": 0x52, "snapshot_read": 0x53,
    "record_keys": 0x54,
    "backup_begin": 0x4C, "backup_read": 0x4D, "backup_digest": 0x4E, "backup_end": 0x4F,
    "set_member": 0x3A, "mark_unread_since": 0x3B,
    "list_consumers": 0x3C, "read_feed": 0x3D, "put_consumer": 0x47, "remove_consumer": 0x48, "open_partition": 0x49,
    "commit_consumer": 0x4A, "lease_partitions": 0x4B,
    "import_channel": 0x60, "import_messages": 0x61, "import_members": 0x62, "import_acknowledgements": 0x63,
    "list_stored_channels": 0x64, "export_channel": 0x65, "list_users": 0x66,
    "put_push_job": 0x67, "claim_push_jobs": 0x68, "update_push_jobs": 0x69,
}
KINDS |= {name + "_reply": kind | 0x80 for name, kind in KINDS.items()
          if 0x10 <= kind < 0x50 or kind in (0x52, 0x53, 0x54) or 0x60 <= kind <= 0x69}


def header(length, kind, flags=0, shard=0, correlation=0):
    return (
        length.to_bytes(4, "big") + bytes([kind, flags]) + shard.to_bytes(2, "big") + correlation.to_bytes(4, "big"))


def frame(kind, fields, flags=0, shard=0, correlation=0, name=None, issued=None, thread=None):
    if thread is not None:
        flags |= 4
        fields = fields + [string("thread", thread)]
    if issued is not None:
        flags |= 2
        fields = fields + [raw("issued", issued.to_bytes(4, "big").hex())]
    payload = encode_all(fields)
    return {
        "name": name or kind,
        "kind": kind,
        "kind_number": KINDS[kind],
        "flags": flags,
        "shard": shard,
        "correlation": correlation,
        "fields": fields,
        "hex": (header(8 + len(payload), KINDS[kind], flags, shard, correlation) + payload).hex(),
    }


def bad(name, refusal, hexadecimal, limit=None):
    """`refusal`: the WireError, with its field after a colon where it names one."""
    entry = {"name": name, "refusal": refusal, "hex": hexadecimal}
    if limit is not None:
        entry["length_limit"] = limit
    return entry


def altered(kind, payload, **where):
    return (header(8 + len(payload), KINDS[kind], **where) + payload).hex()
