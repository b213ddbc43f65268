internal import Foundation

/// An answer of `application/problem+json`, as far as a person wants to hear of it.
enum Problem {
  private struct Document: Decodable {
    var code: String?
    var detail: String?
  }

  static func parts(of body: [UInt8]) -> (code: String, detail: String) {
    let document = try? JSONDecoder().decode(Document.self, from: Data(body))
    return (document?.code ?? "", document?.detail ?? "")
  }
}
