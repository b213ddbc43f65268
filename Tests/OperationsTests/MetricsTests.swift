import Foundation
import NIOCore
import NIOPosix
import TestPrograms
import Testing

@testable import Operations

@Suite struct MetricsTests {
  private func text(_ samples: MetricSamples) -> String {
    var buffer = ByteBuffer()
    samples.write(into: &buffer)
    return String(buffer: buffer)
  }

  @Test func samplesAreWrittenAsText() {
    var samples = MetricSamples()
    samples.counter(
      "tidemark_gateway_requests_total",
      help: "Requests.",
      labels: ["route": "read", "status": "2xx"],
      7
    )
    samples.counter(
      "tidemark_gateway_requests_total",
      help: "Requests.",
      labels: ["route": "read", "status": "4xx"],
      1
    )
    samples.gauge("tidemark_gateway_connections", help: "Open connections.", 3)
    var histogram = Histogram(bounds: [0.5, 1])
    for value in [0.25, 0.5, 0.75, 9] { histogram.record(value) }
    samples.histogram("tidemark_gateway_store_seconds", help: "Round trips.", histogram)
    #expect(
      text(samples) == """
        # HELP tidemark_gateway_connections Open connections.
        # TYPE tidemark_gateway_connections gauge
        tidemark_gateway_connections 3
        # HELP tidemark_gateway_requests_total Requests.
        # TYPE tidemark_gateway_requests_total counter
        tidemark_gateway_requests_total{route="read",status="2xx"} 7
        tidemark_gateway_requests_total{route="read",status="4xx"} 1
        # HELP tidemark_gateway_store_seconds Round trips.
        # TYPE tidemark_gateway_store_seconds histogram
        tidemark_gateway_store_seconds_bucket{le="0.5"} 2
        tidemark_gateway_store_seconds_bucket{le="1"} 3
        tidemark_gateway_store_seconds_bucket{le="+Inf"} 4
        tidemark_gateway_store_seconds_sum 10.5
        tidemark_gateway_store_seconds_count 4

        """
    )
  }

  @Test func helpAndLabelsAreEscaped() {
    var samples = MetricSamples()
    samples.counter("a_b_c", help: "one\ntwo\\", labels: ["k_1": "q\"u\\o\nte"], 1)
    #expect(text(samples) == "# HELP a_b_c one\\ntwo\\\\\n# TYPE a_b_c counter\na_b_c{k_1=\"q\\\"u\\\\o\\nte\"} 1\n")
  }

  @Test(arguments: [
    (0.0, "0"), (1.5, "1.5"), (-3, "-3"), (.infinity, "+Inf"), (-.infinity, "-Inf"), (.nan, "NaN"),
    (1e300, "1e+300"),
  ]) func numberIsFormatted(_ number: Double, _ expected: String) {
    #expect(MetricSamples.text(number) == expected)
  }

  @Test func samplesMergeByNameAndLabels() {
    var one = MetricSamples()
    one.counter("c_total", help: "", labels: ["l": "a"], 1)
    one.histogram("h", help: "", Histogram(bounds: [1]))
    var two = MetricSamples()
    two.counter("c_total", help: "help", labels: ["l": "a"], 2)
    two.counter("c_total", help: "help", labels: ["l": "b"], 5)
    two.gauge("h", help: "a clash of kinds is left out", 1)
    one.highest("q_max", help: "", 7)
    two.highest("q_max", help: "", 4)
    one.merge(two)
    let merged = text(one)
    #expect(merged.contains("# TYPE q_max gauge\nq_max 7\n"))
    #expect(merged.contains("c_total{l=\"a\"} 3\nc_total{l=\"b\"} 5\n"))
    #expect(merged.contains("# TYPE h histogram\n") && !merged.contains("clash"))
  }

  @Test func samplesOfLoopsAreSummed() async throws {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
    let registry = MetricsRegistry()
    for loop in group.makeIterator() {
      registry.register(on: loop) { samples in
        samples.counter(
          "tidemark_loop_total",
          help: "Per loop.",
          labels: ["kind": "a"],
          MultiThreadedEventLoopGroup.currentEventLoop === loop ? 10 : -1
        )
        samples.gauge("tidemark_level", help: "Level.", 2.25)
        var batches = Histogram(bounds: [4, 16])
        batches.record(5)
        samples.histogram("tidemark_batch", help: "Batches.", batches)
      }
    }
    let found = text(try await registry.collect(on: group.next()).get())
    #expect(found.contains("# HELP tidemark_loop_total Per loop.\n"))
    #expect(found.contains("tidemark_loop_total{kind=\"a\"} 20\n"))
    #expect(found.contains("tidemark_level 4.5\n"))
    #expect(found.contains("tidemark_batch_bucket{le=\"16\"} 2\n"))
    #expect(found.contains("process_cpu_seconds_total "))
    try await checkWithPromtool(found)
    try await group.shutdownGracefully()
  }

  /// Check the format with Prometheus' promtool if it is installed.
  private func checkWithPromtool(_ exposition: String) async throws {
    guard FileManager.default.isExecutableFile(atPath: "/usr/bin/promtool") else { return }
    let output = try await Command.run("/usr/bin/promtool", ["check", "metrics"], input: exposition)
    let complaints = output.out + output.error
    let serious = complaints.split(separator: "\n").filter { !$0.contains("no help text") }
    #expect(output.status == 0 || serious.isEmpty, "\(complaints)")
  }

  @Test func bucketsAreFoundByTheirBounds() {
    let text = "age_bucket{le=\"0.5\"} 3\nage_bucket{le=\"+Inf\"} 4\nage_sum 2\nages_bucket{le=\"1\"} 9\n"
    #expect(MetricText.buckets("age", in: text) == [0.5: 3, .infinity: 4])
    #expect(MetricText.buckets("sum", in: text) == [:])
  }

  @Test func metricIsFoundByWholeName() {
    let text = "# HELP pages Pages.\npages_written 3\npages 12\nother{loop=\"0\"} 1\n"
    #expect(MetricText.value("pages", in: text) == 12)
    #expect(MetricText.value("missing", in: text) == nil)
    #expect(MetricText.value(#"other{loop="0"}"#, in: text) == 1)
    #expect(MetricText.sum("other", in: text) == 1 && MetricText.sum("page", in: text) == 0)
  }
}
