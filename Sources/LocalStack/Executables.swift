internal import Foundation

/// Paths of the real programs, in the directory of the running one.
package struct Executables: Sendable {
  /// Path of `tidemark-store`.
  package let store: String
  /// Path of `tidemark-gateway`.
  package let gateway: String

  /// Find the programs in a directory.
  package init(directory: String) throws(StackError) {
    store = directory + "/tidemark-store"
    gateway = directory + "/tidemark-gateway"
    for path in [store, gateway] where !FileManager.default.isExecutableFile(atPath: path) {
      throw StackError("\(path) is not there: build the three programs into one directory (make build)")
    }
  }

  /// Find the programs in the directory of this process's executable.
  package static func besideCurrentExecutable() throws(StackError) -> Executables {
    try Executables(directory: (ownPath() as NSString).deletingLastPathComponent)
  }

  /// Return the path of this process's executable.
  package static func ownPath() throws(StackError) -> String {
    guard let own = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe") else {
      throw StackError("/proc/self/exe cannot be read")
    }
    return own
  }

  /// Find a program on the PATH.
  package static func find(_ name: String) -> String? {
    let path =
      ProcessInfo.processInfo.environment["PATH"] ?? "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
    // Debian keeps servers in sbin, which is not on every user's PATH.
    let directories = path.split(separator: ":").map(String.init) + ["/usr/sbin", "/usr/local/sbin"]
    return directories.map { "\($0)/\(name)" }.first { FileManager.default.isExecutableFile(atPath: $0) }
  }
}
