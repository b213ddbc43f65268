import Foundation
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// docs/operate/metrics.md has each metric that the services show, with its type and help text, and no other.
  @Suite struct MetricDocuments {
    /// Shown only in a cluster, with TLS between gateway and store, or once a push was acknowledged or a rate limit was
    /// exceeded.
    private static let rare: Set<String> = [
      "tidemark_store_follow_age_seconds",
      "tidemark_store_groups_gained_total",
      "tidemark_store_groups_lost_total",
      "tidemark_store_joining_groups",
      "tidemark_store_key_waits",
      "tidemark_store_member_groups",
      "tidemark_store_owned_groups",
      "tidemark_store_snapshots_installed_total",
      "tidemark_store_groups",
      "tidemark_store_log_appended_bytes_total",
      "tidemark_store_log_call_seconds",
      "tidemark_store_log_database_bytes",
      "tidemark_store_log_errors_total",
      "tidemark_store_log_leader_moves_total",
      "tidemark_store_log_received_bytes_total",
      "tidemark_store_log_records_appended_total",
      "tidemark_store_log_sent_bytes_total",
      "tidemark_store_log_server",
      "tidemark_store_log_trims_total",
      "tidemark_store_log_unclear_total",
      "tidemark_gateway_push_acks_total", "tidemark_gateway_push_delivery_seconds",
      "tidemark_gateway_rate_limited_total",
      "tidemark_gateway_store_tls_certificate_expires_timestamp_seconds",
      "tidemark_gateway_store_tls_handshakes_failed_total",
      "tidemark_store_tls_certificate_expires_timestamp_seconds",
      "tidemark_store_tls_handshakes_failed_total",
    ]

    @Test func alertsNameDocumentedMetrics() throws {
      let documents = try ["/docs/operate/metrics.md", "/Deploy/prometheus/alerts.yaml"].map {
        try String(contentsOfFile: TestServices.packageRoot + $0, encoding: .utf8)
      }
      let names = documents.map { text in
        Set(text.matches(of: /tidemark_[a-z_]+?(?=(_bucket)?[^a-z_])/).map { String($0.output.0) })
      }
      #expect(names[1].count > 5 && names[1].isSubset(of: names[0]), "\(names[1].subtracting(names[0]))")
    }

    @Test func eachMetricIsDocumented() async throws {
      let text = try String(contentsOfFile: TestServices.packageRoot + "/docs/operate/metrics.md", encoding: .utf8)
      var documented: [String: (type: String, help: String)] = [:]
      for row in text.split(separator: "\n") where row.hasPrefix("| `") {
        let cells = row.components(separatedBy: " | ").map {
          $0.trimmingCharacters(in: CharacterSet(charactersIn: "| `"))
        }
        documented[cells[0]] = (cells[1], cells[3])
      }
      try await TestServices.with(storeFlags: ["--feed-retention", "1h"]) { services in
        _ = try await services.curl("GET", "/v1/channels/messaging:none", token: services.serverToken)
        let consumer = "/v1/feed/consumers/search"
        _ = try await services.curl("PUT", consumer, token: services.serverToken, json: #"{"from":"now"}"#)
        // The store's figures are read four times a second.
        try await eventually("the store has metrics of the consumer") {
          try await Scrape.text(of: services.stack.plan.storeAdmin).contains("{consumer=\"search\"}")
        }
        var shown: Set<String> = []
        for address in [services.stack.plan.storeAdmin] + services.stack.plan.gateways.map(\.admin) {
          for line in try await Scrape.text(of: address).split(separator: "\n") {
            let words = line.split(separator: " ", maxSplits: 3).map(String.init)
            guard words.count == 4, words[0] == "#" else { continue }
            shown.insert(words[2])
            let entry = documented[words[2]]
            #expect((words[1] == "HELP" ? entry?.help : entry?.type) == words[3], "\(words[2])")
          }
        }
        #expect(Set(documented.keys) == shown.union(Self.rare))
      }
    }
  }
}
