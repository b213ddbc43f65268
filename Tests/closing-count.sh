#!/usr/bin/env bash
# Reads a log of `swift test` and closes with one line, `N passed, N failed`; fails unless tests ran and all of them passed.
set -euo pipefail
log=$1
count() { grep -E "^$1 Test .* $2 after" "$log" | grep -cvE "^$1 Test run with " || true; }
passed=$(count ✔ passed)
failed=$(count ✘ failed)
if ! grep -qE '^✔ Test run with [0-9]+ tests?.* passed after' "$log" && [ "$failed" = 0 ]; then
  # The run stopped before its end: a crash is a failure, whatever was counted.
  failed=1
  echo "the test run did not come to its end; its last lines:"
  tail -n 20 "$log"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
