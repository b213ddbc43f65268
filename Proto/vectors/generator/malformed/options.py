"""Options by malformed values."""

from ..fields.notation import varint
from ..fields.values import nullable, reminder_rules, request_roles, rule_count, rule_percentage
from .payloads import bad_option

BAD_OPTIONS = [
    # Options by their values.
    bad_option("read_events 255", 1, "ff"),
    bad_option("delivery_events 2", 2, "02"),
    bad_option("history 2", 4, "02"),
    bad_option("read_acks_receipts 3", 5, "03"),
    bad_option("receipt_ttl of no second", 6, nullable(0)),
    bad_option("receipt_ttl above 32 bits", 6, nullable(2**32)),
    bad_option("receipt_ttl in two bytes where one is enough", 6, "8000"),
    bad_option("receipt_ttl cut in its number", 6, "80"),
    bad_option("receipt_ttl with more behind it", 6, "0200"),
    bad_option("receipt_max_members above 32 bits", 7, nullable(2**32)),
    bad_option("receipt_daily_limit of 11 bytes", 8, "ff" * 10 + "01"),
    bad_option("receipt_request_roles 2", 9, "02"),
    bad_option("receipt_request_roles: none, and a list", 9, "0000"),
    bad_option("receipt_request_roles without its list", 9, "01"),
    bad_option("receipt_request_roles: a role less than announced", 9, "01020161"),
    bad_option("receipt_request_roles: a role more than announced", 9, "010101610162"),
    bad_option("receipt_request_roles: a role cut", 9, "01010261"),
    bad_option("receipt_request_roles: 65 roles", 9, request_roles(*(f"r{n}" for n in range(65)))),
    bad_option("receipt_request_roles: 2^64-1 roles", 9, "01" + varint(2**64 - 1).hex()),
    bad_option("receipt_request_roles: an empty role", 9, request_roles("")),
    bad_option("receipt_request_roles: a role with a space", 9, request_roles("an admin")),
    bad_option("receipt_request_roles: a role of 65 bytes", 9, request_roles("r" * 65)),
    bad_option("counts_visible_to 2", 10, "02"),
    bad_option("status_rule 4", 11, "04"),
    bad_option("status_rule any, with a number", 11, "0001"),
    bad_option("status_rule of no member", 11, rule_count(0)),
    bad_option("status_rule of members above 32 bits", 11, rule_count(2**32)),
    bad_option("status_rule without its count", 11, "02"),
    bad_option("status_rule without its percentage", 11, "03"),
    bad_option("status_rule 0 %", 11, rule_percentage(0)),
    bad_option("status_rule 101 %", 11, rule_percentage(101)),
    bad_option("kept_steps 4097", 12, varint(4097).hex()),
    bad_option("kept_steps above 64 bits", 12, "ff" * 9 + "02"),
    bad_option("reminders: five", 13, reminder_rules(*[(60, 1, 1)] * 5)),
    bad_option("reminders: more than there can be", 13, "04" + "3c0101"),
    bad_option("reminders: after no second", 13, reminder_rules((0, 1, 1))),
    bad_option("reminders: after more than 366 days", 13, reminder_rules((31_622_401, 1, 1))),
    bad_option("reminders: after more than 32 bits", 13, reminder_rules((2**32, 1, 1))),
    bad_option("reminders: when 3", 13, reminder_rules((60, 3, 1))),
    bad_option("reminders: of no member", 13, reminder_rules((60, 1, 0))),
    bad_option("reminders: of 100001 members", 13, reminder_rules((60, 1, 100_001))),
    bad_option("reminders: with more behind them", 13, reminder_rules((60, 1, 1)) + "00"),
]

EMPTY_OPTIONS = [
    bad_option(f"option {n} with an empty value", n, "") for n in range(2, 14)
]
