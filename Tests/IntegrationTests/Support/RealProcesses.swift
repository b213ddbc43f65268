import TestSupport
import Testing

/// The suite of this target's tests that start the real programs.
@Suite(.processLanes) enum RealProcesses {}
