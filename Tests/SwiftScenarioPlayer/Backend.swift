import Crypto
import Foundation
import TidemarkClient

#if canImport(FoundationNetworking)
  import FoundationNetworking
#endif

/// What the host of the player says.
struct Settings: Decodable {
  /// Address of the gateway.
  var url: URL
  /// File of the secret that signs tokens.
  var jwtSecretFile: String
  /// Address of the gateway's operations listener.
  var admin: URL
  /// Whether steps of the host are left out.
  var withoutHost: Bool?
}

/// The chat backend: it sets channels up, registers messages and signs tokens.
struct Backend {
  let settings: Settings
  let transport: URLSessionTransport
  private let secret: SymmetricKey

  init(_ settings: Settings) throws {
    self.settings = settings
    transport = URLSessionTransport(url: settings.url)
    let text = try String(contentsOfFile: settings.jwtSecretFile, encoding: .utf8)
    secret = SymmetricKey(data: Data(text.prefix { $0 != "\n" }.utf8))
  }

  /// A token of these claims.
  func token(_ claims: [String: JSONValue], seconds: Int = 3_600) throws -> String {
    let now = Int(Date().timeIntervalSince1970)
    let body = claims.merging(["iat": .int(now), "exp": .int(now + seconds)]) { claim, _ in claim }
    let header: [String: JSONValue] = ["alg": "HS256", "typ": "JWT"].mapValues(JSONValue.string)
    let signed = try [header, body].map { Self.base64(try JSONEncoder().encode($0)) }.joined(separator: ".")
    let signature = HMAC<SHA256>.authenticationCode(for: Data(signed.utf8), using: secret)
    return signed + "." + Self.base64(Data(signature))
  }

  private static func base64(_ data: Data) -> String {
    data.base64EncodedString().replacingOccurrences(of: "+", with: "-")
      .replacingOccurrences(of: "/", with: "_").replacingOccurrences(of: "=", with: "")
  }

  /// Make a request.
  ///
  /// - Parameter claims: Those of the caller; a server's by default.
  @discardableResult
  func request(
    _ method: String,
    _ path: String,
    _ body: JSONValue? = nil,
    as claims: [String: JSONValue] = ["server": .bool(true)]
  ) async throws -> JSONValue {
    let response = try await transport.open(
      TransportRequest(
        method: method,
        path: path,
        headers: ["authorization": "Bearer " + token(claims), "content-type": "application/json"],
        body: body.map { try JSONEncoder().encode($0) }
      )
    )
    var data = Data()
    for try await chunk in response.chunks { data += chunk }
    guard response.status < 300 else {
      throw Failure("\(method) \(path): \(response.status) \(String(decoding: data, as: UTF8.self))")
    }
    return try JSONDecoder().decode(JSONValue.self, from: data)
  }

  /// Number of requests that the gateway has answered, by its metrics.
  func countRequests(_ route: String) async throws -> Int {
    let (data, _) = try await URLSession.shared.data(from: settings.admin.appendingPathComponent("metrics"))
    let name = "tidemark_gateway_requests_total{route=\"\(route)\""
    return String(decoding: data, as: UTF8.self).split(separator: "\n").filter { $0.hasPrefix(name) }
      .reduce(0) { sum, line in sum + (line.split(separator: " ").last.flatMap { Int($0) } ?? 0) }
  }

  static func encode(_ id: String) -> String {
    id.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? ""
  }
}
