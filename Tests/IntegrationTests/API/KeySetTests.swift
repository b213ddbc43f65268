import Foundation
import LocalStack
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// Tokens of an identity provider: RSA keys of a JWKS that also has other keys, signed by OpenSSL's own program.
  @Suite struct KeySets {
    static func base64URL(_ data: Data) -> String {
      data.base64EncodedString().replacingOccurrences(of: "+", with: "-")
        .replacingOccurrences(of: "/", with: "_").replacingOccurrences(of: "=", with: "")
    }

    private static func shell(_ script: String, _ arguments: [String]) async throws -> String {
      let output = try await Command.run("bash", ["-ec", "set -o pipefail; " + script, "bash"] + arguments)
      guard output.status == 0 else { throw Unexpected("\(script): \(output.error)") }
      return output.out.trimmingCharacters(in: .whitespacesAndNewlines)
    }

    /// Make a key pair.
    ///
    /// - Returns: its modulus, as in a JWK.
    static func makeKey(_ path: String) async throws -> String {
      let hex = try await shell(
        """
        openssl genpkey -quiet -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out $1; openssl rsa -in $1 -noout \
        -modulus
        """,
        [path]
      )
      var bytes = Data()
      var digits = hex.dropFirst("Modulus=".count)
      while let byte = UInt8(digits.prefix(2), radix: 16) {
        bytes.append(byte)
        digits = digits.dropFirst(2)
      }
      return base64URL(bytes)
    }

    static func token(_ key: String, kid: String, _ algorithm: String) async throws -> String {
      let signed =
        base64URL(Data(#"{"alg":"\#(algorithm)","typ":"JWT","kid":"\#(kid)"}"#.utf8)) + "."
        + base64URL(Data(#"{"sub":"bob","iat":1700000000,"exp":9999999999}"#.utf8))
      let padding = algorithm == "PS256" ? "-sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:32" : ""
      let signature = try await shell(
        "printf %s \"$2\" | openssl dgst -sha256 -sign $1 \(padding) | base64 -w0",
        [key, signed]
      )
      return signed + "." + base64URL(Data(base64Encoded: signature) ?? Data())
    }

    @Test func rsaKeysAreUsedAndOthersSkipped() async throws {
      let directory = NSTemporaryDirectory() + "tidemark-test-keys-\(UUID().uuidString)"
      try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
      defer { try? FileManager.default.removeItem(atPath: directory) }
      let (first, second) = (directory + "/first.pem", directory + "/second.pem")
      let n = (try await Self.makeKey(first), try await Self.makeKey(second))
      let set = directory + "/jwks.json"
      let keys = [
        #"{"kty":"RSA","use":"sig","alg":"RS256","kid":"declared","n":"\#(n.0)","e":"AQAB","x5t":"x"}"#,
        #"{"kty":"RSA","kid":"open","n":"\#(n.1)","e":"AQAB"}"#,
        #"{"kty":"RSA","use":"enc","alg":"RSA-OAEP","kid":"for-encryption","n":"\#(n.1)","e":"AQAB"}"#,
        #"{"kty":"EC","crv":"P-384","alg":"ES384","kid":"another-curve","x":"AA","y":"AA"}"#,
      ]
      try "{\"keys\":[\(keys.joined(separator: ","))]}".write(toFile: set, atomically: true, encoding: .utf8)
      try await TestServices.with(gatewayFlags: ["--jwks-file", set]) { services in
        try await services.expect(
          201,
          "PUT",
          "/v1/channels/messaging:team",
          token: services.serverToken,
          json: #"{"members":["alice","bob"]}"#
        )
        let path = "/v1/channels/messaging:team/read-state"
        let good = try await Self.token(first, kid: "declared", "RS256")
        for (token, expected) in [
          (good, 200), (try await Self.token(second, kid: "open", "RS256"), 200),
          (try await Self.token(second, kid: "open", "PS256"), 200),
          // The wrong algorithm for the key, another key's owner, and a wrong signature.
          (try await Self.token(first, kid: "declared", "PS256"), 401),
          (try await Self.token(second, kid: "declared", "RS256"), 401),
          (String(good.dropLast(8)) + "AAAAAAAA", 401), (services.serverToken, 200),
        ] {
          let response = try await services.curl("GET", path, token: token)
          #expect(response.status == expected, "\(token): \(response)")
        }
        let log = try services.log(of: "gateway-h2c")
        let lines = log.split(separator: "\n").filter { $0.contains("Skipping a key of the key set") }
        #expect(lines.count == 2, "\(log)")
        for kid in ["for-encryption", "another-curve"] {
          #expect(lines.contains { $0.contains(kid) }, "\(lines)")
        }
      }
    }
  }
}
