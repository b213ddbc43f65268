import Foundation
import NIOCore
import NIOPosix
import Operations
import Synchronization
import TestSupport
import Testing

@testable import Worker

/// Bounds of what is in flight, and the metrics.
@Suite struct PushLimitTests {
  /// What runs at the same time.
  private final class Load: Sendable {
    struct Values {
      var tasks = 0
      var bytes = 0
      var tasksMax = 0
      var bytesMax = 0
    }

    private let values = Mutex(Values())

    var most: Values { values.withLock { $0 } }

    func begin(_ bytes: Int) {
      values.withLock { values in
        values.tasks += 1
        values.bytes += bytes
        values.tasksMax = max(values.tasksMax, values.tasks)
        values.bytesMax = max(values.bytesMax, values.bytes)
      }
    }

    func end(_ bytes: Int) {
      values.withLock { values in
        values.tasks -= 1
        values.bytes -= bytes
      }
    }
  }

  @Test func slotsBoundConcurrentWork() async {
    let (slots, load) = (Slots(3), Load())
    await withDiscardingTaskGroup { group in
      for _ in 0..<100 {
        group.addTask {
          await slots.with {
            load.begin(1)
            await Task.yield()
            load.end(1)
          }
        }
      }
    }
    #expect((1...3).contains(load.most.tasksMax) && load.most.tasks == 0)
  }

  /// The reader adds jobs only while there is room; the last one may exceed the bytes.
  @Test func readerWaitsForRoom() async {
    let (budget, load) = (JobBudget(jobsMax: 4, bytesMax: 100), Load())
    await withDiscardingTaskGroup { group in
      for number in 0..<200 {
        let bytes = number % 40
        await budget.waitForRoom()
        budget.add(bytes: bytes)
        load.begin(bytes)
        group.addTask {
          await Task.yield()
          load.end(bytes)
          budget.remove(bytes: bytes)
        }
      }
    }
    #expect(load.most.tasksMax <= 4 && load.most.bytesMax < 140 && load.most.tasks == 0)
  }

  @Test func stopEndsAllWaits() async {
    let stop = StopSignal()
    await withTaskGroup(of: Bool.self) { group in
      for _ in 0..<10 { group.addTask { await stop.wait(milliseconds: 3_600_000) } }
      stop.stop()
      for await hasPassed in group { #expect(!hasPassed) }
    }
    #expect(await stop.wait(milliseconds: 3_600_000) == false)
    #expect(await StopSignal().wait(milliseconds: 1))
  }

  /// docs/api/push-send.md has each metric, and no other.
  @Test func metricsAreDocumented() async throws {
    let metrics = PushMetrics(providers: ["ios"])
    metrics.jobEnded("done")
    metrics.deviceEnded(.gone(code: "x"), provider: "ios")
    metrics.deviceEnded(.gone(code: "x"), provider: "unknown")
    metrics.requestStarted("ios")
    metrics.requestEnded("ios", .accepted(id: nil), seconds: 0.1)
    metrics.set(isPaused: true, "ios")
    let registry = MetricsRegistry()
    let loop = MultiThreadedEventLoopGroup.singleton.next()
    registry.register(on: loop) { metrics.collect(into: &$0) }
    var buffer = ByteBuffer()
    try await registry.collect(on: loop).get().write(into: &buffer)
    let text = String(buffer: buffer)
    #expect(text.contains(#"tidemark_worker_push_devices_total{provider="ios",result="gone"} 1"#), "\(text)")
    #expect(text.contains(#"tidemark_worker_push_provider_paused{provider="ios"} 1"#) && !text.contains("unknown"))
    let page = try String(contentsOf: packageRoot.appendingPathComponent("docs/api/push-send.md"), encoding: .utf8)
    func names(_ text: String, _ pattern: Regex<(Substring, Substring)>) -> Set<String> {
      Set(text.matches(of: pattern).map { String($0.output.1) })
    }
    let shown = names(text, /# TYPE (tidemark_worker_push_\w+)/)
    let documented = names(page, /\n\| `(tidemark_worker_push_\w+)`/)
    #expect(shown == documented && shown.count == 6)
  }
}
