internal import NIOCore
internal import NIOPosix
internal import Synchronization

/// A number of slots that tasks take and return. Tasks that find none wait in the order of arrival.
final class Slots: Sendable {
  private struct State {
    var free: Int
    var waiting: [CheckedContinuation<Void, Never>] = []
  }

  private let state: Mutex<State>

  init(_ count: Int) { state = Mutex(State(free: count)) }

  /// Run a body with a slot.
  func with<Value: Sendable>(_ body: () async throws -> Value) async rethrows -> Value {
    await take()
    defer { give() }
    return try await body()
  }

  private func take() async {
    await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
      let isFree = state.withLock { state in
        guard state.free == 0 else {
          state.free -= 1
          return true
        }
        state.waiting.append(continuation)
        return false
      }
      if isFree { continuation.resume() }
    }
  }

  private func give() {
    let next = state.withLock { state -> CheckedContinuation<Void, Never>? in
      guard !state.waiting.isEmpty else {
        state.free += 1
        return nil
      }
      return state.waiting.removeFirst()
    }
    next?.resume()
  }
}

/// Limit of the jobs in flight, by number and by the bytes of their lines. The reader waits while it is reached.
final class JobBudget: Sendable {
  private struct State {
    var jobs = 0
    var bytes = 0
    var waiting: CheckedContinuation<Void, Never>?
  }

  private let jobsMax: Int
  private let bytesMax: Int
  private let state = Mutex(State())

  init(jobsMax: Int, bytesMax: Int) {
    self.jobsMax = jobsMax
    self.bytesMax = bytesMax
  }

  /// Wait until another job fits. Only one task may wait, the reader.
  func waitForRoom() async {
    await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
      let isFree = state.withLock { state in
        if hasRoom(state) { return true }
        state.waiting = continuation
        return false
      }
      if isFree { continuation.resume() }
    }
  }

  private func hasRoom(_ state: State) -> Bool { state.jobs < jobsMax && state.bytes < bytesMax }

  func add(bytes: Int) {
    state.withLock { state in
      state.jobs += 1
      state.bytes += bytes
    }
  }

  func remove(bytes: Int) {
    let waiting = state.withLock { state -> CheckedContinuation<Void, Never>? in
      state.jobs -= 1
      state.bytes -= bytes
      guard hasRoom(state) else { return nil }
      defer { state.waiting = nil }
      return state.waiting
    }
    waiting?.resume()
  }
}

/// Waiting that ends at once when the process stops.
final class StopSignal: Sendable {
  private struct State {
    var isStopped = false
    var nextID: UInt64 = 0
    var waiting: [UInt64: CheckedContinuation<Void, Never>] = [:]
  }

  private let state = Mutex(State())

  var isStopped: Bool { state.withLock { $0.isStopped } }

  /// End all waits, now and later.
  func stop() {
    let waiting = state.withLock { state in
      state.isStopped = true
      defer { state.waiting = [:] }
      return state.waiting.values.map { $0 }
    }
    for continuation in waiting { continuation.resume() }
  }

  /// Wait for a time.
  ///
  /// - Returns: whether the time has passed; false: the process stops.
  func wait(milliseconds: Int64) async -> Bool {
    await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
      let id = state.withLock { state -> UInt64? in
        guard !state.isStopped else { return nil }
        state.nextID += 1
        state.waiting[state.nextID] = continuation
        return state.nextID
      }
      guard let id else { return continuation.resume() }
      MultiThreadedEventLoopGroup.singleton.next().scheduleTask(in: .milliseconds(milliseconds)) { [self] in
        state.withLock { $0.waiting.removeValue(forKey: id) }?.resume()
      }
    }
    return !isStopped
  }
}
