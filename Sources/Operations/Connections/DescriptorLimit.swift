#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#endif

/// Maximum number of open descriptors (sockets and files) of the process (setrlimit(2), `RLIMIT_NOFILE`).
package enum DescriptorLimit {
  /// More than any listener here uses.
  private static let most: UInt64 = 1 << 20

  /// Return the share of the limit for connections. The rest is for files, the connection to the store, and
  /// administration.
  ///
  /// - Parameter limit: result of ``raise()``.
  package static func forConnections(of limit: Int) -> Int { limit - min(limit / 2, 256) }

  /// Raise the soft limit to the hard one, which needs no privilege. Debian's soft limit is 1,024.
  ///
  /// - Returns: the new limit.
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
