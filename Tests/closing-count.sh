#!/usr/bin/env bash
# Reads a log of `swift test` and closes with one line, `N passed, N failed`; fails unless tests ran and all of them passed.
set -euo pipefail
log=$1
passed=$(grep -cE '^✔ Test .* passed after' "$log" || true)
failed=$(grep -cE '^✘ Test .* failed after' "$log" || true)
if ! grep -qE '^✔ Test run with [0-9]+ tests?.* passed after' "$log" && [ "$failed" = 0 ]; then
  # The run stopped before its end: a crash is a failure, whatever was counted.
  failed=1
  echo "the test run did not come to its end; its last lines:"
  tail -n 20 "$log"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
