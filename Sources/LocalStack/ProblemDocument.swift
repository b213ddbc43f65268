internal import Foundation

/// An answer of `application/problem+json`, as far as a person wants to hear of it.
package enum ProblemDocument {
  private struct Document: Decodable {
    var code: String?
    var detail: String?
  }

  /// Its code and detail; empty where it has none, or is no such document.
  package static func parts(of body: [UInt8]) -> (code: String, detail: String) {
    let document = try? JSONDecoder().decode(Document.self, from: Data(body))
    return (document?.code ?? "", document?.detail ?? "")
  }
}
