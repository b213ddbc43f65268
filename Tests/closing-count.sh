#!/usr/bin/env bash
# Reads a log of `swift test` and prints one line, `N passed, N failed`. Fails unless tests ran, all of them passed, and
# the run exited with 0.
# usage: closing-count.sh LOG [STATUS]
set -euo pipefail
log=$1
status=${2:-0}
count() { grep -E "^$1 Test .* $2 after" "$log" | grep -cvE "^$1 Test run with " || true; }
passed=$(count ✔ passed)
failed=$(count ✘ failed)
skipped=$(grep -cE '^➜ (Test|Suite) .* skipped' "$log" || true)
if ! grep -qE '^✔ Test run with [0-9]+ tests?.* passed after' "$log" && [ "$failed" = 0 ]; then
  # A crash is a failure, whatever the counts are.
  failed=1
fi
if [ "$status" != 0 ]; then
  echo "the test run exited with $status"
  [ "$failed" != 0 ] || failed=1
fi
if ! grep -qE '^(✔|✘) Test run with [0-9]+ tests?.* after' "$log"; then
  echo "the test run did not finish; its last lines:"
  tail -n 20 "$log" | cut -c 1-400
  echo "unfinished tests:"
  awk '
    /^◇ Test .* started\.$/ && !/^◇ Test (run|case) / { sub(/^◇ Test /, ""); sub(/ started\.$/, ""); open[$0]++ }
    /^(✔|✘) Test .* (passed|failed) after / {
      sub(/^(✔|✘) Test /, ""); sub(/ (passed|failed) after .*/, ""); sub(/ with [0-9]+ test cases?$/, ""); open[$0]--
    }
    END { for (name in open) if (open[name] > 0) print "  " name }' "$log"
fi
if [ "$failed" != 0 ]; then
  # The failures are listed above, but may be far up or cut off. So they are repeated here, with their expectations.
  awk '
    /^✘ Test run with /{shown = 0; next}
    /^✘ /{shown = 1; print; next}
    /^↳|^  /{if (shown) print; next}
    {shown = 0}' "$log" | head -n 60 | cut -c 1-400
fi
# The counts above miss lines that other output was printed into. The run's own total is exact.
total=$(sed -nE 's/^(✔|✘) Test run with ([0-9]+) tests?.*/\2/p' "$log" | tail -n 1)
[ -z "$total" ] || passed=$((total - failed))
if [ "$skipped" != 0 ]; then
  # A skipped suite is one line in the log and counts as one.
  grep -E '^➜ (Test|Suite) .* skipped' "$log" | cut -c 1-200
  passed=$((passed > skipped ? passed - skipped : 0))
  echo "$passed passed, $failed failed, $skipped skipped"
else
  echo "$passed passed, $failed failed"
fi
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
