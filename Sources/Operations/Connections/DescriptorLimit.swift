#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#endif

/// How many descriptors (sockets and files) the process may have open at once (setrlimit(2), `RLIMIT_NOFILE`).
package enum DescriptorLimit {
  /// More than any listener here takes.
  private static let most: UInt64 = 1 << 20

  /// What connections may take of it: the rest is for files, the way to the store, and whoever looks after the process.
  ///
  /// - Parameter limit: as ``raise()`` returns it.
  package static func forConnections(of limit: Int) -> Int { limit - min(limit / 2, 256) }

  /// Raises the soft limit to the hard one, which takes no privilege. Debian's soft limit is 1,024.
  ///
  /// - Returns: the limit from now on.
  package static func raise() -> Int {
    var limit = rlimit()
    #if canImport(Musl)
      let resource = RLIMIT_NOFILE
    #else
      let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
    #endif
    guard getrlimit(resource, &limit) == 0 else { return 1_024 }
    let soft = UInt64(limit.rlim_cur)
    limit.rlim_cur = limit.rlim_max
    let raised = setrlimit(resource, &limit) == 0 ? UInt64(limit.rlim_max) : soft
    return Int(min(raised, most))
  }
}
