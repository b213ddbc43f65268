"""Frames of push jobs."""

from ..fields.notation import byte, many, number
from ..fields.push import claimed_job, named_jobs, put_push_job, update_jobs
from ..fields.values import CID, T0
from ..framing import frame

JOB_FRAMES = [
    frame("put_push_job",
          put_push_job(62, "m1", 2**64 - 1, 604_800_000, '{"cid":"' + CID + '"}', ("bob", '[{"token":"✓"}]'),
                       ("alice", "[]")), shard=3, correlation=67),
    frame("put_push_job", put_push_job(2**64 - 1, "", 0, 2**64 - 1, ""), shard=3, correlation=67,
          name="put_push_job: nobody, and no content"),
    frame("put_push_job_reply", [number("accepted", 2)], correlation=67),
    frame("claim_push_jobs", [number("milliseconds", 10_000), number("limit", 100), number("bytes", 65_536)], shard=3,
          correlation=68),
    frame("claim_push_jobs_reply", [many("jobs", []), byte("more", 0)], correlation=68,
          name="claim_push_jobs_reply: none"),
    frame("claim_push_jobs_reply", [many("jobs", [
        claimed_job(T0, 2**64 - 1, T0, T0 + 604_800_000, "{}", ("bob", '[{"token":"t"}]'), ("u" * 255, "")),
        claimed_job(2**64 - 1, 1, 2**63 - 1, 2**63 - 1, "c" * 40_000,
                    ("alice", "d" * 1_000))]), byte("more", 1)], correlation=68),
    frame("update_push_jobs", update_jobs(63, 1, 0, (1, 0), (2**64 - 1, 2**64 - 1)), shard=3, correlation=69),
    frame("update_push_jobs", update_jobs(64, 0, 600_000), shard=3, correlation=69, name="update_push_jobs: none"),
    frame("update_push_jobs_reply", [named_jobs("unknown", (2**64 - 1, T0))], correlation=69),
]
