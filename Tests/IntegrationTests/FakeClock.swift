import Foundation
import TestPrograms

/// A wall clock for one program that a test sets, also while the program runs (`Clients/fake_clock.c`). Built by the
/// machine's C compiler, which Swift needs too.
struct FakeClock: Sendable {
  private let directory: String

  private var file: String { directory + "/fake-clock" }
  private var library: String { directory + "/fake_clock.so" }

  /// - Parameter directory: where the library and the clock's setting go.
  init(in directory: String, aheadSeconds: Int64 = 0) async throws {
    self.directory = directory
    try Data(count: 8).write(to: URL(fileURLWithPath: file))
    let source = Pair.client("fake_clock.c")
    let built = try await Command.run("cc", ["-O1", "-Wall", "-shared", "-fPIC", "-o", library, source])
    guard built.status == 0 else { throw Unexpected("\(source) does not compile: \(built.error)") }
    try set(aheadSeconds: aheadSeconds)
  }

  /// What a program needs in its environment.
  var variables: [String: String] { ["LD_PRELOAD": library, "FAKE_CLOCK": file] }

  /// Sets the clock, from now on.
  func set(aheadSeconds: Int64) throws {
    let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: file))
    // In place and at once: the program has it mapped.
    try handle.write(contentsOf: withUnsafeBytes(of: aheadSeconds) { Data($0) })
    try handle.close()
  }
}
