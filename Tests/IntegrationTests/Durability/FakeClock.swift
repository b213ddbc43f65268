import Foundation
import TestPrograms
import TestSupport

/// A wall clock for one program that a test sets, also while the program runs (`Clients/Durability/fake_clock.c`). The
/// machine's C compiler builds it, which Swift needs too.
struct FakeClock: Sendable {
  private let directory: String

  private var file: String { directory + "/fake-clock" }
  private var library: String { directory + "/fake_clock.so" }

  /// - Parameter directory: the directory of the library and of the file with the clock's setting.
  init(in directory: String, aheadSeconds: Int64 = 0) async throws {
    self.directory = directory
    try Data(count: 8).write(to: URL(fileURLWithPath: file))
    let source = TestServices.client("Durability/fake_clock.c")
    let built = try await Command.run("cc", ["-O1", "-Wall", "-shared", "-fPIC", "-o", library, source])
    guard built.status == 0 else { throw Unexpected("\(source) does not compile: \(built.error)") }
    try set(aheadSeconds: aheadSeconds)
  }

  /// The environment variables that a program needs.
  var variables: [String: String] { ["LD_PRELOAD": library, "FAKE_CLOCK": file] }

  /// Set the clock, with immediate effect.
  func set(aheadSeconds: Int64) throws {
    let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: file))
    // In place and in one write: the program has the file mapped.
    try handle.write(contentsOf: withUnsafeBytes(of: aheadSeconds) { Data($0) })
    try handle.close()
  }
}
