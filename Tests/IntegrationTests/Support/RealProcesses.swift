import TestSupport
import Testing

/// The suite of all tests that start real processes. `TIDEMARK_TEST_LANES` of them run at the same time, two by
/// default.
@Suite(.lanes(TestRun.number("TIDEMARK_TEST_LANES") ?? 2)) enum RealProcesses {}
