public import Foundation

/// Keeps marks that the server has not answered. Values are JSON of some hundred bytes.
///
/// Several clients of a process may share one store: they send its marks in turns.
public protocol Store: AnyObject, Sendable {
  /// What the clients of this store share. Make one in `init`, and keep it.
  var sharing: StoreSharing { get }

  /// All entries by rising keys.
  ///
  /// - Throws: Any error, if the store cannot be read now. The client tries again later.
  func all() async throws -> [(key: String, value: Data)]

  /// Add an entry or replace it, and return when it is kept.
  ///
  /// - Throws: Any error, if it is not kept. A new mark is then reported as refused.
  func put(_ key: String, _ value: Data) async throws

  /// Remove an entry; do nothing if there is none.
  func delete(_ key: String) async throws
}

/// The turn to send a store's marks, and the order of its keys.
///
/// `@unchecked`: every access to the variables is under the lock.
public final class StoreSharing: @unchecked Sendable {
  private let lock = NSLock()
  private var isTaken = false
  private var waiting: [(id: Int, continuation: CheckedContinuation<Void, any Error>)] = []
  private var nextID = 0
  private var newestKey = 0

  /// Create what the clients of a new store share.
  public init() {}

  /// A key above all earlier ones, also while the clock stands still.
  func makeKey(now: Date, random: Double) -> String {
    let number = lock.withLock {
      newestKey = max(newestKey + 1, Int(now.timeIntervalSince1970 * 1_000_000))
      return newestKey
    }
    let digits = String(number)
    let suffix = String(UInt32(random * Double(UInt32.max)), radix: 36)
    return String(repeating: "0", count: max(0, 18 - digits.count)) + digits + "-" + suffix
  }

  /// Wait for the turn. Whoever gets it has to call ``endTurn()``.
  ///
  /// - Throws: `CancellationError`, without the turn.
  func beginTurn() async throws {
    let id = lock.withLock {
      nextID += 1
      return nextID
    }
    try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        let result: Result<Void, any Error>? = lock.withLock {
          if Task.isCancelled { return .failure(CancellationError()) }
          if isTaken {
            waiting.append((id, continuation))
            return nil
          }
          isTaken = true
          return .success(())
        }
        if let result { continuation.resume(with: result) }
      }
    } onCancel: {
      let cancelled = lock.withLock {
        waiting.firstIndex { $0.id == id }.map { waiting.remove(at: $0).continuation }
      }
      cancelled?.resume(throwing: CancellationError())
    }
  }

  /// Pass the turn on.
  func endTurn() {
    let next = lock.withLock {
      if waiting.isEmpty {
        isTaken = false
        return nil as CheckedContinuation<Void, any Error>?
      }
      return waiting.removeFirst().continuation
    }
    next?.resume()
  }
}

/// Keeps marks in memory: they are lost when the process ends.
public actor MemoryStore: Store {
  /// What the clients of this store share.
  public nonisolated let sharing = StoreSharing()
  private var values: [String: Data] = [:]

  /// Create an empty store.
  public init() {}

  /// All entries by rising keys.
  public func all() -> [(key: String, value: Data)] { values.sorted { $0.key < $1.key } }

  /// Add an entry or replace it.
  public func put(_ key: String, _ value: Data) { values[key] = value }

  /// Remove an entry.
  public func delete(_ key: String) { values[key] = nil }
}

/// Keeps marks in a directory, one file each, so that a damaged file costs one mark.
///
/// A process has one `FileStore` for a directory, and no other process uses it.
public actor FileStore: Store {
  private static let suffix = ".mark"

  /// What the clients of this store share.
  public nonisolated let sharing = StoreSharing()
  private let directory: URL
  /// What the files contain; nil: they are not read yet.
  private var values: [String: Data]?

  /// Keep marks in a directory, which is made with the first mark. Each user has one of their own.
  public init(directory: URL) { self.directory = directory }

  /// All entries by rising keys.
  ///
  /// - Throws: `CocoaError`, if the directory cannot be read.
  public func all() throws -> [(key: String, value: Data)] {
    try readFiles()
    return (values ?? [:]).sorted { $0.key < $1.key }
  }

  /// Write an entry's file.
  ///
  /// - Throws: `CocoaError`, such as on a full disk.
  public func put(_ key: String, _ value: Data) throws {
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    try value.write(to: file(key), options: .atomic)
    values?[key] = value
  }

  /// Remove an entry's file.
  ///
  /// - Throws: `CocoaError`, if the file is there and cannot be removed.
  public func delete(_ key: String) throws {
    if FileManager.default.fileExists(atPath: file(key).path) {
      try FileManager.default.removeItem(at: file(key))
    }
    values?[key] = nil
  }

  private func file(_ key: String) -> URL { directory.appendingPathComponent(key + Self.suffix) }

  /// Read the files once.
  private func readFiles() throws {
    guard values == nil else { return }
    var read: [String: Data] = [:]
    if FileManager.default.fileExists(atPath: directory.path) {
      for name in try FileManager.default.contentsOfDirectory(atPath: directory.path)
      where name.hasSuffix(Self.suffix) {
        let key = String(name.dropLast(Self.suffix.count))
        read[key] = try Data(contentsOf: file(key))
      }
    }
    values = read
  }
}
