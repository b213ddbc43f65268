#!/usr/bin/env bash
# Reads logs of test runs and prints one line, `N passed, N failed`. Fails unless each run ended with status 0, ran
# tests, and all of them passed.
# usage: closing-count.sh LOG STATUS [LOG STATUS]...
set -euo pipefail
passed=0 failed=0 skipped=0

# Adds the counts of one run, and prints why it failed.
add() {
  local log=$1 status=$2 fine broken missing total
  count() { grep -E "^$1 Test .* $2 after" "$log" | grep -cvE "^$1 Test run with " || true; }
  fine=$(count ✔ passed)
  broken=$(count ✘ failed)
  missing=$(grep -cE '^➜ (Test|Suite) .* skipped' "$log" || true)
  if ! grep -qE '^✔ Test run with [0-9]+ tests?.* passed after' "$log" && [ "$broken" = 0 ]; then
    # A crash is a failure, whatever the counts are.
    broken=1
  fi
  if [ "$status" != 0 ]; then
    echo "the run of $log exited with $status"
    [ "$broken" != 0 ] || broken=1
  fi
  if ! grep -qE '^(✔|✘) Test run with [0-9]+ tests?.* after' "$log"; then
    echo "the run of $log did not finish; its last lines:"
    tail -n 20 "$log" | cut -c 1-400
    echo "unfinished tests:"
    awk '
      /^◇ Test .* started\.$/ && !/^◇ Test (run|case) / { sub(/^◇ Test /, ""); sub(/ started\.$/, ""); open[$0]++ }
      /^(✔|✘) Test .* (passed|failed) after / {
        sub(/^(✔|✘) Test /, ""); sub(/ (passed|failed) after .*/, ""); sub(/ with [0-9]+ test cases?$/, ""); open[$0]--
      }
      END { for (name in open) if (open[name] > 0) print "  " name }' "$log"
  fi
  if [ "$broken" != 0 ]; then
    # The failures are listed above, but may be far up or cut off. So they are repeated here, with their expectations.
    awk '
      /^✘ Test run with /{shown = 0; next}
      /^✘ /{shown = 1; print; next}
      /^↳|^  /{if (shown) print; next}
      {shown = 0}' "$log" | head -n 60 | cut -c 1-400
  fi
  # The counts above miss lines that other output was printed into. The run's own total is exact.
  total=$(sed -nE 's/^(✔|✘) Test run with ([0-9]+) tests?.*/\2/p' "$log" | tail -n 1)
  [ -z "$total" ] || fine=$((total - broken))
  # A skipped suite is one line in the log and counts as one.
  grep -E '^➜ (Test|Suite) .* skipped' "$log" | cut -c 1-200 || true
  fine=$((fine > missing ? fine - missing : 0))
  [ "$fine" != 0 ] || [ "$broken" != 0 ] || { echo "the run of $log has no test that passed"; broken=1; }
  passed=$((passed + fine)) failed=$((failed + broken)) skipped=$((skipped + missing))
}

while [ $# -gt 0 ]; do
  add "$1" "${2:-0}"
  shift $(($# < 2 ? 1 : 2))
done
if [ "$skipped" != 0 ]; then
  echo "$passed passed, $failed failed, $skipped skipped"
else
  echo "$passed passed, $failed failed"
fi
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
