package import Operations
internal import TestSupport

/// The metrics of a program that runs, from its operations listener.
package enum Scrape {
  /// All metrics as text. Throws if the program does not answer.
  package static func text(of admin: Endpoint) async throws -> String {
    guard let response = await HealthCheck.get("http://\(admin)/metrics"), response.status == 200 else {
      throw Unexpected("\(admin) does not show its metrics")
    }
    return response.body
  }

  /// The value of one metric, labels included in the name. Throws if the program does not show it.
  package static func value(_ name: String, of admin: Endpoint) async throws -> Double {
    let text = try await text(of: admin)
    guard let value = MetricText.value(name, in: text) else { throw Unexpected("no \(name) in \(text)") }
    return value
  }

  /// The sum of a metric over its labels; 0 if the program does not show it.
  package static func sum(_ name: String, of admin: Endpoint) async throws -> Double {
    MetricText.sum(name, in: try await text(of: admin))
  }
}
