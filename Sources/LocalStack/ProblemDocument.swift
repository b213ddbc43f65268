internal import Foundation

/// Code and detail of an `application/problem+json` response.
package enum ProblemDocument {
  private struct Document: Decodable {
    var code: String?
    var detail: String?
  }

  /// Parse a body's code and detail; empty if they are missing or the body is not such a document.
  package static func parts(of body: [UInt8]) -> (code: String, detail: String) {
    let document = try? JSONDecoder().decode(Document.self, from: Data(body))
    return (document?.code ?? "", document?.detail ?? "")
  }
}
