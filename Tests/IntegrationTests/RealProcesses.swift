import Testing

/// Every test here starts real processes; on two cores they run one after the other.
@Suite(.serialized) enum RealProcesses {}
